"""The measurements of the sink: statistics for queue-limit functions, and its metrics (A1)."""

from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.metric_types import MetricType

_HALVE_AFTER = 10_000
"""Number of records after which older ones count half, so that the mean follows a change of size."""


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """The values that a `queue_limit` function receives.

    - `mean_record_bytes`: recent mean of data and key of a user record (0 before the first record).
    - `shards`: open shards of the stream.
    - `outstanding_records`, `outstanding_bytes`: records accepted and not yet acknowledged, and the bytes that they hold in memory.
    """

    mean_record_bytes: float
    shards: int
    outstanding_records: int
    outstanding_bytes: int


class MeanSize:
    """The mean size of recently completed records."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def add(self, records: int, size: int) -> None:
        """Count records with `size` bytes in total."""
        if self._records >= _HALVE_AFTER:
            self._records //= 2
            self._bytes //= 2
        self._records += records
        self._bytes += size

    @property
    def value(self) -> float:
        """Mean bytes of a record; 0 before the first record."""
        return self._bytes / self._records if self._records else 0.0


COUNTER, GAUGE = MetricType.COUNTER, MetricType.GAUGE
KINESIS_SINK_METRICS: dict[str, tuple[MetricType, str, str]] = {
    "outstandingRecordsCount": (GAUGE, "records", "accepted and not yet acknowledged"),
    "outstandingBytes": (GAUGE, "bytes", "of the records not yet acknowledged, as held in memory"),
    "queueLimit": (GAUGE, "records", "current limit in records; null: only bytes are limited"),
    "queueLimitBytes": (GAUGE, "bytes", "current limit in bytes"),
    "waitingWrites": (GAUGE, "calls", "`put` and `write` calls that wait for capacity"),
    "openRequests": (GAUGE, "calls", "PutRecords calls that have not ended"),
    "shards": (GAUGE, "shards", "open shards of the stream, as last listed"),
    "meanRecordBytes": (GAUGE, "bytes", "recent mean of data and key of a user record"),
    "backpressureCycles": (COUNTER, "checks", "checks for capacity by a waiting write that found none"),
    "numRecordsOut": (COUNTER, "records", "user records acknowledged"),
    "numBytesOut": (COUNTER, "bytes", "bytes of data and keys acknowledged"),
    "numRecordsOutErrors": (COUNTER, "records", "user records rejected or given up"),
    "kinesisRecords": (COUNTER, "records", "Kinesis records acknowledged: fewer than user records with aggregation"),
    "requests": (COUNTER, "calls", "PutRecords calls that ended, failed ones included"),
    "failedRequests": (COUNTER, "calls", "calls that failed as a whole and are retried"),
    "retries": (COUNTER, "records", "Kinesis records sent again"),
    "throttles": (COUNTER, "records", "Kinesis records throttled by a shard"),
    "misroutedRecords": (
        COUNTER,
        "records",
        "user records sent again: their aggregate reached another shard than expected (a reshard)",
    ),
    "shardMapRefreshes": (COUNTER, "calls", "shard listings after the first"),
    "currentSendTimeMs": (GAUGE, "ms", "duration of the last PutRecords call"),
}


class SinkMetrics:
    """Owns the counters of one sink, by the names of `KINESIS_SINK_METRICS`, and the duration of its last call."""

    def __init__(self) -> None:
        self._counts = {name: 0 for name, (kind, *_) in KINESIS_SINK_METRICS.items() if kind is COUNTER}
        self._send_time_ms = 0

    def add(self, name: str, count: int = 1) -> None:
        """Add `count` to a counter."""
        self._counts[name] += count

    def call_ended(self, seconds: float) -> None:
        """Count a PutRecords call that took this long."""
        self.add("requests")
        self._send_time_ms = round(seconds * 1000)

    def as_dict(self, **gauges: Any) -> dict[str, Any]:
        """Return the given gauges and these counters."""
        return {**gauges, **self._counts, "currentSendTimeMs": self._send_time_ms}
