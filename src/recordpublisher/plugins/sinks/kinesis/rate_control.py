"""How fast a shard may be written to: its rate limit, and a congestion window (AIMD) for shards that other writers use too."""

from __future__ import annotations

from dataclasses import dataclass

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, then the shard pauses: few large calls instead of many small ones."""
MAX_CREDIT_SECONDS = 0.5
"""At most this much unused time may be caught up on. The service allows a second; this plus one burst stays below that."""
MAX_WINDOW = 5_000
DECREASE_FACTOR = 0.8
INCREASE = 5


class CongestionWindow:
    """How many Kinesis records one shard may have unacknowledged, and may be sent within one burst.

    Additive increase, multiplicative decrease: writers that share a shard converge to equal shares. TCP's factor of one half is too
    strong for a shard whose limit is a rate (FLINK-31772). A window that starts small doubles until the shard first throttles.
    """

    def __init__(self, initial: int = MAX_WINDOW) -> None:
        self.size = initial
        self._is_in_slow_start = True

    def grow(self) -> None:
        """The shard took every record of a call."""
        self.size = min(MAX_WINDOW, 2 * self.size if self._is_in_slow_start else self.size + INCREASE)

    def shrink(self) -> None:
        """The shard throttled a record."""
        self._is_in_slow_start = False
        self.size = max(1, int(self.size * DECREASE_FACTOR))


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times `RateLimit`; and the initial window."""

    records_per_second: float
    bytes_per_second: float
    initial_window: int = MAX_WINDOW

    @property
    def burst_records(self) -> int:
        """Records that may be sent to the shard at once."""
        return max(1, int(self.records_per_second * BURST_SECONDS))

    @property
    def burst_bytes(self) -> int:
        """Bytes that may be sent to the shard at once; a larger record goes alone."""
        return int(self.bytes_per_second * BURST_SECONDS)

    def pause_seconds(self, records: int, size: int, window: int) -> float:
        """How long the shard pauses after this many records and bytes."""
        return max(records / self.records_per_second, size / self.bytes_per_second, BURST_SECONDS * records / window)
