"""What the sink has measured: for queue limits that are functions, and for its metrics (A1)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

_REMEMBERED = 10_000
"""Records after which older ones begin to count half: the mean follows a change of size."""


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """What a `queue_limit` function is given.

    `mean_record_bytes`: data and key of a user record, lately (0 before the first record); `shards`: open shards of the stream;
    `outstanding_records`, `outstanding_bytes`: handed over and not yet acknowledged, bytes as held in memory.
    """

    mean_record_bytes: float
    shards: int
    outstanding_records: int
    outstanding_bytes: int


class MeanSize:
    """The mean size of the records that were settled lately."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def add(self, records: int, size: int) -> None:
        """Records of together `size` bytes."""
        if self._records >= _REMEMBERED:
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
    """Counters of one sink, with Flink's names where they exist."""

    backpressure_cycles: int = 0
    """Times that a writer looked for room and found none (Flink: backpressureCycles)."""
    num_records_out: int = 0
    """User records acknowledged."""
    num_bytes_out: int = 0
    """Data and keys acknowledged."""
    num_records_out_errors: int = 0
    """User records given up."""
    kinesis_records: int = 0
    """Kinesis records acknowledged: fewer than user records with aggregation."""
    requests: int = 0
    """PutRecords calls answered or failed."""
    failed_requests: int = 0
    """Calls that failed as a whole."""
    retries: int = 0
    """Kinesis records sent again."""
    throttles: int = 0
    """Kinesis records refused by a shard's limit."""
    wrong_shard_records: int = 0
    """User records sent again because their aggregate went to another shard than predicted."""
    shard_map_refreshes: int = 0
    """Times that the shards were listed after the first."""
    current_send_time_ms: int = 0
    """Gauge: how long the last call took (Flink: currentSendTime)."""

    def shown(self, **gauges: Any) -> dict[str, Any]:
        """The gauges and these counters, by their public names."""
        return {**gauges, **{_camel(each.name): getattr(self, each.name) for each in fields(self)}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
