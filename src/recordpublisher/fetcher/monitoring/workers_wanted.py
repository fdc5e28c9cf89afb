"""Computes how many workers a group should have, from what each process observes of its own shards (E11)."""

from collections import deque
from collections.abc import Mapping, Set

import msgspec

from recordpublisher.publishers.clock import Clock

WINDOW_SECONDS, MIN_SECONDS = 60.0, 10.0
"""The time over which the reading speed is measured, and the shortest time of a measurement (seconds)."""
NORMAL_LOAD_SHARE = 0.8
"""The share of a worker's capacity that is planned for normal load; the rest is for peaks."""
CATCH_UP_SECONDS = 600.0
"""The time in which a group that is behind should reach the tip (seconds)."""
MIN_SPEED = 0.1
"""The lowest speed that is assumed, in seconds of the stream per second.

So a worker without progress asks for ten times as many workers at most.
"""


def workers_wanted(
    shards: int, lag: float, speed: float | None, rate: float, capacity: float | None, catch_up: float
) -> float:
    """Return a process's part of the number of workers that its group should have. The sum of the parts of all processes is that number.

    - `shards`: number of the process's open shards. A shard has one reader, so more workers than shards would be useless.
    - `lag`: how far these shards are behind the tip on average (seconds).
    - `speed`: seconds of the stream that the process reads per second, or None if that is not known.
    - `rate`: records that it writes per second.
    - `capacity`: the highest rate at which it wrote while it was behind, or None if it never was behind.
    - `catch_up`: the time in which the tip should be reached (seconds). A process whose lag is less than a tenth of `catch_up` does not
      count as behind.

    There are three cases:

    1. The process is behind: the result is the factor by which reading must become faster to reach the tip in time.
    2. The process is not behind, and its capacity is known: the result is its rate divided by `NORMAL_LOAD_SHARE` (0.8) of its capacity.
    3. Otherwise the result is 1, so the number of workers stays as it is.
    """
    wanted = 1.0
    if lag > catch_up / 10:
        if speed is not None:
            wanted = (1 + lag / catch_up) / max(speed, MIN_SPEED)
    elif capacity:
        wanted = rate / (NORMAL_LOAD_SHARE * capacity)
    return min(wanted, float(shards))


class _Sample(msgspec.Struct, frozen=True):
    at: float
    lag: float
    records: int


class WorkersWanted:
    """Measures the speed of a process with its current shards, and the highest rate at which it wrote while it was behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._shards: Set[str] = frozenset()
        self._capacity: float | None = None
        self.part = 0.0
        """The last result of `workers_wanted`."""

    def observe(self, lags_ms: Mapping[str, int | None], records: int) -> None:
        """Register a measurement.

        - `lags_ms`: how far each open shard of this process is behind (ms), or None if that is not known.
        - `records`: number of records written so far.
        """
        now = self._clock.monotonic()
        if lags_ms.keys() != self._shards:
            self._shards = lags_ms.keys()
            self._samples.clear()
        lags = [lag for lag in lags_ms.values() if lag is not None]
        latest = _Sample(now, sum(lags) / 1000 / max(len(lags), 1), records)
        self._samples.append(latest)
        while now - self._samples[0].at > WINDOW_SECONDS:
            self._samples.popleft()
        first = self._samples[0]
        seconds, speed, rate = now - first.at, None, 0.0
        if seconds >= MIN_SECONDS:
            speed, rate = 1 + (first.lag - latest.lag) / seconds, (records - first.records) / seconds
            if min(first.lag, latest.lag) > CATCH_UP_SECONDS / 10:
                self._capacity = max(rate, self._capacity or 0.0)
        self.part = workers_wanted(len(lags_ms), latest.lag, speed, rate, self._capacity, CATCH_UP_SECONDS)
