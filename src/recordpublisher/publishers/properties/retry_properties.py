"""The properties of retries: for how long a job retries, and four properties for each operation."""

from typing import TypeVar

import msgspec

from ..errors import ConfigurationError
from ..retry import RetryPolicy
from .declaration import Property, PropertyGroup, PropertyValues

V = TypeVar("V", bound=PropertyValues)
JOB = PropertyGroup("Job")
MAX_OUTAGE = JOB.integer(
    "flink.job.max.outage",
    "For how long calls of the job are retried while a service is unreachable: reads, listings, subscriptions, state stores, sinks and "
    "acknowledgements. Spark's option is `maxOutage`. 30 s for reads with an end (`stream`, `consume` with a bound, frames) and for "
    "commands other than `run` and `put`. Retry properties of Flink that are set take precedence for their call.",
    900_000,
    unit="ms",
    bare_from=1_000,
    aliases=("maxOutage",),
    argument="max_outage",
)
SHORT_OUTAGE_MS = 30_000
"""How long calls are retried if `flink.job.max.outage` is not set (ms), in reads with an end and in commands other than `run` and `put`."""
LONGEST_PAUSE_MS = 5_000
"""The largest back-off in an outage, if its property is not set (ms). It is short, so that a service that works again is soon used."""


class RetryProperties(msgspec.Struct, frozen=True):
    """The four properties of the retries of one operation, such as GetRecords."""

    max_retries: Property[int]
    base: Property[int]
    maximum: Property[int]
    exponent: Property[float]

    def policy(self, properties: PropertyValues) -> RetryPolicy:
        """Return the policy that these properties describe. If the number of retries is not set, `flink.job.max.outage` is the limit.

        Raises: ConfigurationError if the first back-off is above the largest one.
        """
        base, maximum = properties.value(self.base), properties.value(self.maximum)
        if base > maximum:
            raise ConfigurationError(self.base.key, base, f"at most {self.maximum.key} ({maximum} ms)")
        retries, exponent = properties.value(self.max_retries), properties.value(self.exponent)
        if properties.is_set(self.max_retries):
            return RetryPolicy(retries, base, maximum, exponent, decided_by=self.max_retries.key)
        if not properties.is_set(self.maximum):
            maximum = LONGEST_PAUSE_MS
        return outage_policy(properties, base, maximum, exponent)


def with_short_outages(properties: V) -> V:
    """Return the properties with `flink.job.max.outage` set to 30 s, unless they set it. For reads with an end, and for commands."""
    return properties if properties.is_set(MAX_OUTAGE) else properties.merged({MAX_OUTAGE.key: SHORT_OUTAGE_MS})


def outage_policy(
    properties: PropertyValues, base_ms: int = 300, max_ms: int = LONGEST_PAUSE_MS, exponent: float = 1.5
) -> RetryPolicy:
    """Return the policy of a call that is retried for `flink.job.max.outage`.

    - `base_ms`, `max_ms`: the upper limits of the first and of the longest pause between two calls (ms).
    - `exponent`: the factor by which this limit grows after each call.
    """
    return RetryPolicy(0, base_ms, max_ms, exponent, properties.value(MAX_OUTAGE), MAX_OUTAGE.key)


def retry_properties(
    group: PropertyGroup,
    stem: str,
    operation: str,
    retries: int,
    base: int,
    maximum: int,
    connector: tuple[str, str, str] = ("", "", ""),
    also: str = "",
) -> RetryProperties:
    """Declare the four properties of the retries of an operation.

    - `stem`: the beginning of the four keys.
    - `operation`: the name of the operation in the descriptions.
    - `retries`, `base`, `maximum`: the defaults of the number of retries, of the first and of the largest back-off (ms).
    - `connector`: the same three defaults in Flink's connector, if they differ from ours.
    - `also`: an alias of `stem`.
    """

    def spelt(part: str) -> tuple[str, ...]:
        return (f"{also}.{part}",) if also else ()

    retries_words = f"Failures of {operation} in a row, without progress between them, before the job fails."
    of_connector, base_of_connector, maximum_of_connector = connector
    return RetryProperties(
        group.integer(
            f"{stem}.maxretries", retries_words, retries, connector=of_connector, aliases=spelt("maxretries")
        ),
        group.integer(
            f"{stem}.backoff.base",
            f"First back-off of {operation}.",
            base,
            unit="ms",
            connector=base_of_connector,
            aliases=spelt("backoff.base"),
        ),
        group.integer(
            f"{stem}.backoff.max",
            f"Largest back-off of {operation}.",
            maximum,
            unit="ms",
            connector=maximum_of_connector,
            aliases=spelt("backoff.max"),
        ),
        group.number(
            f"{stem}.backoff.expconst",
            f"Growth of the back-off of {operation}.",
            1.5,
            minimum=1.0,
            aliases=spelt("backoff.expconst"),
        ),
    )
