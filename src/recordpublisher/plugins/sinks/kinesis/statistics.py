"""What the sink measures: statistics for queue-limit functions, and its metrics (A1)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

_HALVE_AFTER = 10_000
"""Records after which older ones count half, so that the mean follows a change of size."""


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """What a `queue_limit` function receives.

    `mean_record_bytes`: recent mean of data and key of a user record (0 before the first record); `shards`: open shards of the stream;
    `outstanding_records`, `outstanding_bytes`: accepted and not yet acknowledged, bytes as held in memory.
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
        """Bytes; 0 before the first record."""
        return self._bytes / self._records if self._records else 0.0


@dataclass(slots=True)
class SinkMetrics:
    """Counters of one sink; Flink's names where Flink has them."""

    backpressure_cycles: int = 0
    """Checks for capacity by a waiting write that found none (Flink: backpressureCycles)."""
    num_records_out: int = 0
    """User records acknowledged."""
    num_bytes_out: int = 0
    """Bytes of data and keys acknowledged."""
    num_records_out_errors: int = 0
    """User records rejected or given up."""
    kinesis_records: int = 0
    """Kinesis records acknowledged: fewer than user records with aggregation."""
    requests: int = 0
    """PutRecords calls that ended, failed ones included."""
    failed_requests: int = 0
    """Calls that failed as a whole."""
    retries: int = 0
    """Kinesis records sent again."""
    throttles: int = 0
    """Kinesis records throttled by a shard."""
    misrouted_records: int = 0
    """User records sent again because their aggregate reached another shard than expected (a reshard)."""
    shard_map_refreshes: int = 0
    """Shard listings after the first."""
    current_send_time_ms: int = 0
    """Gauge: duration of the last call (Flink: currentSendTime)."""

    def as_dict(self, **gauges: Any) -> dict[str, Any]:
        """The given gauges and these counters, by their public names."""
        return {**gauges, **{_camel(each.name): getattr(self, each.name) for each in fields(self)}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
