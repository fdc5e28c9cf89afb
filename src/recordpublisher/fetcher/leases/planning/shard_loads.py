"""Measures the load of shards, and rounds it to coarse levels, so that all workers plan with the same numbers (E6)."""

import math
from collections.abc import Iterable, Mapping

FLOOR_BYTES_PER_SECOND = 1_000.0
"""The load of a shard without traffic. Shards at rest are shared by number; compared with busy shards they hardly count."""
LEVEL_RATIO = 1.25
_UNITS_PER_FLOOR = 1_000
MAX_LEVEL = 60
RATE_SECONDS = 60.0
"""Approximate time over which a load is averaged, and for which a shard must be read until its load is known (seconds)."""


def next_level(stated: int, bytes_per_second: float) -> int:
    """Return the level to state.

    It changes only if the load is more than a quarter away from the stated one, or has fallen to the floor.
    """
    exact = math.log(max(bytes_per_second, FLOOR_BYTES_PER_SECOND) / FLOOR_BYTES_PER_SECOND, LEVEL_RATIO)
    # Without `exact > 0` a level of 1 would stay for ever within a quarter of the floor, and shards at rest would stay unequally shared.
    is_close = abs(exact - stated) <= 1 and exact > 0
    return stated if is_close else min(round(exact), MAX_LEVEL)


def weight(level: int) -> int:
    """Return the weight of a shard with this level. It is an integer, so that sums do not depend on their order."""
    return round(_UNITS_PER_FLOOR * LEVEL_RATIO ** max(0, min(level, MAX_LEVEL)))


class LoadRate:
    """Owns the load of one shard in bytes per second. Bytes read `t` seconds ago count with a factor of e^(-t / 60 s).

    `now` is the time at which the shard began to be read (monotonic seconds).
    """

    def __init__(self, now: float) -> None:
        self._began = self._observed = now
        self._bytes = 0
        self._rate = 0.0

    def observe(self, total_bytes: int, now: float) -> None:
        """Register the number of bytes read from the shard so far."""
        seconds = now - self._observed
        if seconds > 0:
            kept = math.exp(-seconds / RATE_SECONDS)
            self._rate = kept * self._rate + (1 - kept) * (total_bytes - self._bytes) / seconds
            self._bytes, self._observed = total_bytes, now

    @property
    def bytes_per_second(self) -> float | None:
        """Load in bytes per second; None in the first minute."""
        seconds = self._observed - self._began
        return None if seconds < RATE_SECONDS else self._rate / (1 - math.exp(-seconds / RATE_SECONDS))


class LoadLevels:
    """Owns the level that this worker states for each of its shards.

    A level is inherited from the previous owner. If a shard began at the lowest level, each move would look like a change of loads, and
    cause another move.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def inherit(self, shard: str, level: int) -> None:
        """Start with the level that the previous owner stated."""
        self._levels[shard] = level

    def state(self, owned: Iterable[str], loads: Mapping[str, float]) -> dict[str, int]:
        """Return the level of each owned shard that has more than the lowest level. `loads`: measured loads in bytes per second."""
        for shard, load in loads.items():
            self._levels[shard] = next_level(self._levels.get(shard, 0), load)
        return {shard: level for shard in owned if (level := self._levels.get(shard, 0)) > 0}
