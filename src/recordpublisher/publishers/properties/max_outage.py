"""Declares `flink.job.max.outage`, which every retry reads."""

from .property_types import PropertyGroup

JOB = PropertyGroup("Job")
MAX_OUTAGE = JOB.integer(
    "flink.job.max.outage",
    "For how long calls of the job are retried while a service is away: reads, listings, subscriptions, state stores, sinks and "
    "acknowledgements. Spark's option is `maxOutage`. 30 s for reads with an end (`stream`, `consume` with a bound, frames) and for "
    "commands other than `run` and `put`. Retry properties of Flink that are set take precedence for their call.",
    900_000,
    unit="ms",
    aliases=("maxOutage",),
    argument="max_outage",
)
