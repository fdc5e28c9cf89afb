"""The score that the producer plays: which event time it has reached after how many seconds, and how far one shard lags."""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Score:
    """A year of flights in `seconds`, unevenly: the pace swings by half around its mean.

    The lagging shard falls behind by up to `largest_lag_ms` of event time in the middle of the performance and has caught up at the end.
    """

    first: int
    last: int
    seconds: float
    largest_lag_ms: int = 60 * DAY_MS

    def reached(self, elapsed: float) -> int:
        """The event time (epoch ms) up to which flights have been played after `elapsed` seconds."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        swing = math.sin(6 * math.pi * part) / (12 * math.pi)
        return self.first + math.ceil((part + swing) * (self.last - self.first))

    def reached_by_lagging(self, elapsed: float) -> int:
        """The same for the lagging shard."""
        part = min(max(elapsed / self.seconds, 0.0), 1.0)
        lag = self.largest_lag_ms * math.sin(math.pi * part) ** 2
        return self.reached(elapsed) - math.floor(lag)

    @property
    def half_way(self) -> int:
        """The event time at which one shard falls silent."""
        return (self.first + self.last) // 2

    def is_time_to_split(self, elapsed: float) -> bool:
        """Whether the reshard is due."""
        return elapsed >= 0.4 * self.seconds
