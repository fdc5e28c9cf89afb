"""What a long-running job may set: when a file is made, and how much may wait for the query."""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.property_types import integer

_GROUP = "Spark"

ROLL_INTERVAL = integer(
    "flink.spark.spool.roll.millis",
    "Mode CONTINUOUS: how long a row waits at most for its file; longer: fewer, larger files. Option `spoolRollInterval`.",
    500,
    10,
    unit="ms",
    group=_GROUP,
    aliases=("spoolRollInterval",),
)
ROLL_BYTES = integer(
    "flink.spark.spool.roll.bytes",
    "Mode CONTINUOUS: payload after which a file is made at once. Option `spoolRollBytes`.",
    16 * 2**20,
    1,
    unit="bytes",
    group=_GROUP,
    aliases=("spoolRollBytes",),
)
ROLL_RECORDS = integer(
    "flink.spark.spool.roll.records",
    "Mode CONTINUOUS: records after which a file is made at once. Option `spoolRollRecords`.",
    100_000,
    1,
    unit="records",
    group=_GROUP,
    aliases=("spoolRollRecords",),
)
LIMIT_BYTES = integer(
    "flink.spark.spool.limit.bytes",
    "Mode CONTINUOUS: payload that may wait for the query; the fetcher stops reading at it until the query has caught "
    "up. Option `maxSpoolBytes`.",
    2**30,
    1,
    unit="bytes",
    group=_GROUP,
    aliases=("maxSpoolBytes",),
)
SPOOL_PROPERTIES = (ROLL_INTERVAL, ROLL_BYTES, ROLL_RECORDS, LIMIT_BYTES)


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Typed; `limit_bytes` is for all lanes together."""

    roll_seconds: float = ROLL_INTERVAL.default / 1000
    roll_bytes: int = ROLL_BYTES.default
    roll_records: int = ROLL_RECORDS.default
    limit_bytes: int = LIMIT_BYTES.default

    @classmethod
    def of(cls, properties: Properties) -> SpoolSettings:
        """Raises: ConfigurationError."""
        return cls(
            roll_seconds=properties.value(ROLL_INTERVAL) / 1000,
            roll_bytes=properties.value(ROLL_BYTES),
            roll_records=properties.value(ROLL_RECORDS),
            limit_bytes=properties.value(LIMIT_BYTES),
        )
