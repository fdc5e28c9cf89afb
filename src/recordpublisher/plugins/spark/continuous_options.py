"""The options of mode CONTINUOUS: when a file is made, and how many bytes may wait for the query."""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.property_types import integer

_GROUP = "Spark"

ROLL_INTERVAL = integer(
    "flink.spark.wal.roll.millis",
    "Mode CONTINUOUS: the longest time until a row is in a file of the write-ahead log. A longer time means fewer, larger files. "
    "Option `walRollInterval`.",
    500,
    10,
    unit="ms",
    group=_GROUP,
    aliases=("walRollInterval",),
)
ROLL_BYTES = integer(
    "flink.spark.wal.roll.bytes",
    "Mode CONTINUOUS: payload after which a file is written at once. Option `walRollBytes`.",
    16 * 2**20,
    1,
    unit="bytes",
    group=_GROUP,
    aliases=("walRollBytes",),
)
ROLL_RECORDS = integer(
    "flink.spark.wal.roll.records",
    "Mode CONTINUOUS: records after which a file is written at once. Option `walRollRecords`.",
    100_000,
    1,
    unit="records",
    group=_GROUP,
    aliases=("walRollRecords",),
)
LIMIT_BYTES = integer(
    "flink.spark.wal.limit.bytes",
    "Mode CONTINUOUS: payload in the write-ahead log that may wait for the query. At this limit the fetcher stops reading until the query "
    "has caught up. Option `maxWalBytes`.",
    2**30,
    1,
    unit="bytes",
    group=_GROUP,
    aliases=("maxWalBytes",),
)
CONTINUOUS_PROPERTIES = (ROLL_INTERVAL, ROLL_BYTES, ROLL_RECORDS, LIMIT_BYTES)


@dataclass(frozen=True, slots=True)
class ContinuousSettings:
    """The options, typed."""

    roll_seconds: float = ROLL_INTERVAL.default / 1000
    roll_bytes: int = ROLL_BYTES.default
    roll_records: int = ROLL_RECORDS.default
    limit_bytes: int = LIMIT_BYTES.default

    @classmethod
    def of(cls, properties: Properties) -> ContinuousSettings:
        """Raises: ConfigurationError."""
        return cls(
            roll_seconds=properties.value(ROLL_INTERVAL) / 1000,
            roll_bytes=properties.value(ROLL_BYTES),
            roll_records=properties.value(ROLL_RECORDS),
            limit_bytes=properties.value(LIMIT_BYTES),
        )
