"""Rates: how much was counted a second, from counters at two moments."""

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 10.0
Counters = Mapping[str, tuple[int, int]]
"""Records and bytes written so far, by shard."""


class Rates:
    """Owns the counters of the last seconds: the newest, and those back to the window's begin."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counters]] = deque()

    def add(self, now: float, counters: Counters) -> None:
        """Take the counters at `now`, in seconds of a monotonic clock. Called about once a second."""
        self._samples.append((now, counters))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    def per_second(self, shard: str) -> tuple[float, float] | None:
        """Records and bytes a second; None: not known, as of a shard that another process took over and counts anew."""
        if len(self._samples) < 2:
            return None
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        if shard not in before or now <= then:
            return None
        (records, size), (records_now, size_now) = before[shard], after[shard]
        if records_now < records:
            return None
        return (records_now - records) / (now - then), (size_now - size) / (now - then)
