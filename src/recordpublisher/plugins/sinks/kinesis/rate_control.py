"""How fast a shard may be written to: an AIMD window for what others leave, a pace for what the service gives."""

from __future__ import annotations

from dataclasses import dataclass

GRAIN_SECONDS = 0.25
"""A shard is given what it takes in this time, then it rests: few large calls instead of many small ones."""
CREDIT_SECONDS = 0.5
"""So much time that a shard was not written to may be caught up on; the service allows a second, this and a grain are below."""
MAX_WINDOW = 5_000
DECREASE = 0.8
INCREASE = 5


class CongestionWindow:
    """The Kinesis records that one shard may have unacknowledged, and may be sent within a grain of time.

    Additive increase, multiplicative decrease: writers that share a shard end up with equal shares. Half, TCP's factor, is too much
    for a shard whose limit is a rate (FLINK-31772). One that begins small doubles until the shard first refuses something.
    """

    def __init__(self, first: int = MAX_WINDOW) -> None:
        self.size = first
        self._is_starting = True

    def grow(self) -> None:
        """Everything that was sent to the shard in one call was taken."""
        self.size = min(MAX_WINDOW, 2 * self.size if self._is_starting else self.size + INCREASE)

    def shrink(self) -> None:
        """The shard refused something because of its limits."""
        self._is_starting = False
        self.size = max(1, int(self.size * DECREASE))


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """What one shard is given, per second: the service's limits, or a share of them (RateLimit); and where its window begins."""

    records_per_second: float
    bytes_per_second: float
    initial_window: int = MAX_WINDOW

    @property
    def grain_records(self) -> int:
        """Records that may go to the shard at once."""
        return max(1, int(self.records_per_second * GRAIN_SECONDS))

    @property
    def grain_bytes(self) -> int:
        """Bytes that may go to the shard at once; a larger record goes alone."""
        return int(self.bytes_per_second * GRAIN_SECONDS)

    def rest(self, records: int, size: int, window: int) -> float:
        """Seconds that a shard rests for so many records and bytes."""
        return max(records / self.records_per_second, size / self.bytes_per_second, GRAIN_SECONDS * records / window)
