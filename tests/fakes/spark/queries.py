"""Queries over a simulated Kinesis, for tests of the planner."""

from __future__ import annotations

from pathlib import Path

from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.stores.spark_read_claims import read_claim_store_of, run_without_loop
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.properties import Properties

from fakes.spark.simulated_kinesis import SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery

LOOKAHEAD = "flink.watermark.lookahead.millis"
IDLE = "flink.shard.idle.interval"
FROM_LATEST = {"flink.stream.initpos": "LATEST"}
FAN_OUT = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "c"}


def options(tmp_path: Path, max_records: int | None = None, max_tasks: int = 2, **properties: object) -> SparkOptions:
    given = Properties({"flink.stream.initpos": "TRIM_HORIZON", **properties})
    settings = {**values_of(SparkOptions, given), "max_records": max_records, "max_tasks": max_tasks}
    return SparkOptions(("s",), str(tmp_path), given, **settings)


def query(kinesis: SimulatedKinesis, tmp_path: Path, **kwargs: object) -> SimulatedQuery:
    return SimulatedQuery(
        kinesis, read_claim_store_of(str(tmp_path), Properties(), run_without_loop), options(tmp_path, **kwargs)
    )


def spread(job: SimulatedQuery) -> int:
    times = [[row[2] for row in rows] for rows in job.rows.values()]
    return max((max(each) - min(each) for each in times if each), default=0)


def two_shards() -> SimulatedKinesis:
    """A stream of two shards, with three records and one."""
    made = SimulatedKinesis()
    made.add("a", [1, 2, 3])
    made.add("b", [4])
    return made
