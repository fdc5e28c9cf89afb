"""Computes the rates per second of shards between two moments, from their counters."""

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 10.0
WrittenCounts = Mapping[str, tuple[int, int]]
"""Records and bytes written so far, by shard."""


class Rates:
    """Computes the rates of shards. Owns the counters of the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, WrittenCounts]] = deque()

    def add(self, now: float, counters: WrittenCounts) -> None:
        """Keep the counters at `now` (seconds of a monotonic clock). Called about once a second."""
        self._samples.append((now, counters))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    def per_second(self, shard: str) -> tuple[float, float] | None:
        """Return records and bytes per second, or None if they are not known.

        For example, they are not known after another process has taken over the shard, because its counters begin at 0.
        """
        if len(self._samples) < 2:
            return None
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        if shard not in before or now <= then:
            return None
        (records, size), (records_now, size_now) = before[shard], after[shard]
        if records_now < records:
            return None
        return (records_now - records) / (now - then), (size_now - size) / (now - then)
