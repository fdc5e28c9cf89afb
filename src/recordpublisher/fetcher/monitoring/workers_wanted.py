"""WorkersWanted: how many workers a group should have, by what each process sees of its own shards (E11)."""

from collections import deque
from collections.abc import Mapping, Set

import msgspec

from recordpublisher.publishers.clock import Clock

WINDOW_SECONDS, MIN_SECONDS = 60.0, 10.0
"""From how much of the past the speed of reading is known, and how much it takes."""
FULL = 0.8
"""Of what a worker can write: so much is planned for it, the rest is for peaks."""
SLOWEST = 0.1
"""Seconds of the stream a second: a worker that stands still asks for ten times as many, and not for any number."""


def workers_wanted(
    shards: int, lag: float, speed: float | None, rate: float, capacity: float | None, catch_up: float
) -> float:
    """A process's part of the number of workers that its group should have: that number is the sum over all processes.

    - `shards`: its open ones. A shard has one reader, so more workers than shards are of no use.
    - `lag`: seconds behind the tip, the mean of its shards; `speed`: seconds of the stream that it reads a second, None: not known.
    - `rate`: records a second; `capacity`: the most that it wrote while it was behind, None: it never was.
    - `catch_up`: in how many seconds the tip should be reached; below a tenth of it a process is not behind.

    There are three cases: 1. It is behind: to reach the tip in time it would have to be faster by a known factor. 2. It is not, and could
    do more: its load. 3. Neither is known: 1, as many as there are.
    """
    wanted = 1.0
    if lag > catch_up / 10:
        if speed is not None:
            wanted = (1 + lag / catch_up) / max(speed, SLOWEST)
    elif capacity:
        wanted = rate / (FULL * capacity)
    return min(wanted, float(shards))


class _Sample(msgspec.Struct, frozen=True):
    at: float
    lag: float
    records: int


class WorkersWanted:
    """Owns what was observed since the process has its shards, and the most that it wrote while it was behind."""

    def __init__(self, catch_up_seconds: float, clock: Clock) -> None:
        self._catch_up = catch_up_seconds
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._shards: Set[str] = frozenset()
        self._capacity: float | None = None
        self.part = 0.0
        """See `workers_wanted`."""

    def observe(self, lags_ms: Mapping[str, int | None], records: int) -> None:
        """Observe how far each open shard of this process is behind (None: not known), and how many records were written so far."""
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
            if min(first.lag, latest.lag) > self._catch_up / 10:
                self._capacity = max(rate, self._capacity or 0.0)
        self.part = workers_wanted(len(lags_ms), latest.lag, speed, rate, self._capacity, self._catch_up)
