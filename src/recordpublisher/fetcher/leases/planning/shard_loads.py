"""Load rates and levels: a worker measures the load of its shards, and states it in coarse steps, so that everybody plans with the same
numbers (E6)."""

import math
from collections.abc import Iterable, Mapping

FLOOR_BYTES_PER_SECOND = 1_000.0
"""The load of a shard without traffic. Shards at rest are shared by number among themselves; beside busy ones they hardly count."""
LEVEL_RATIO = 1.25
_UNITS_PER_FLOOR = 1_000
MAX_LEVEL = 60
RATE_SECONDS = 60.0
"""About how much of the past a load is made of, and for how long a shard must be read until its load is known."""


def next_level(stated: int, bytes_per_second: float) -> int:
    """Return the level to state.

    It changes only if the load is more than a quarter away from the stated one, or has fallen to the floor.
    """
    exact = math.log(max(bytes_per_second, FLOOR_BYTES_PER_SECOND) / FLOOR_BYTES_PER_SECOND, LEVEL_RATIO)
    # A level of 1 is within a quarter of the floor for ever: shards at rest would stay shared unequally.
    is_close = abs(exact - stated) <= 1 and exact > 0
    return stated if is_close else min(round(exact), MAX_LEVEL)


def weight(level: int) -> int:
    """The weight of a shard with this level: an integer, so that sums do not depend on their order."""
    return round(_UNITS_PER_FLOOR * LEVEL_RATIO ** max(0, min(level, MAX_LEVEL)))


class LoadRate:
    """Owns the bytes a second of one shard. What was read `t` seconds ago counts for e^(-t / 60 s)."""

    def __init__(self, now: float) -> None:
        """`now`: when the shard began to be read (monotonic seconds)."""
        self._began = self._observed = now
        self._bytes = 0
        self._rate = 0.0

    def observe(self, total_bytes: int, now: float) -> None:
        """How many bytes were read of the shard until now."""
        seconds = now - self._observed
        if seconds > 0:
            kept = math.exp(-seconds / RATE_SECONDS)
            self._rate = kept * self._rate + (1 - kept) * (total_bytes - self._bytes) / seconds
            self._bytes, self._observed = total_bytes, now

    @property
    def bytes_per_second(self) -> float | None:
        """None in the first minute."""
        seconds = self._observed - self._began
        return None if seconds < RATE_SECONDS else self._rate / (1 - math.exp(-seconds / RATE_SECONDS))


class LoadLevels:
    """Owns the level that this worker states for each of its shards.

    A level is inherited from the owner before. If a shard began at the lowest one, each move would look like a change of loads, and cause
    another move.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def inherit(self, shard: str, level: int) -> None:
        """The owner before stated this level."""
        self._levels[shard] = level

    def state(self, owned: Iterable[str], loads: Mapping[str, float]) -> dict[str, int]:
        """The level of each owned shard, without the lowest; `loads` has the bytes per second of those that were measured."""
        for shard, load in loads.items():
            self._levels[shard] = next_level(self._levels.get(shard, 0), load)
        return {shard: level for shard in owned if (level := self._levels.get(shard, 0)) > 0}
