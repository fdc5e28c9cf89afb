"""Finds the lowest watermark of the shards or workers that count, and their common status."""

from collections.abc import Iterable
from enum import Enum
from typing import Generic

from .min_heap import IndexedMinHeap, K


class ShardsStatus(Enum):
    """How the shards of a process, or a worker, count in the global minimum."""

    ACTIVE = "they count with the lowest watermark; without one the global watermark cannot rise"
    IDLE = "none of them counts"


class ActiveMinimum(Generic[K]):
    """Watermarks by key, of shards or workers. An active key without a watermark counts as the lowest (W2)."""

    def __init__(self) -> None:
        self._known: IndexedMinHeap[K] = IndexedMinHeap()
        self._unknown: dict[K, None] = {}

    def set(self, key: K, active: bool, watermark: int | None) -> None:
        """Set the watermark of one key. An inactive key does not count."""
        self._known.set(key, watermark if active else None)
        if active and watermark is None:
            self._unknown[key] = None
        else:
            self._unknown.pop(key, None)

    def forget(self, key: K) -> None:
        """Remove a key."""
        self.set(key, False, None)

    def status(self) -> tuple[ShardsStatus, int | None]:
        """Return ACTIVE with the lowest watermark, or IDLE if no key counts. The watermark is None while an active key has none."""
        if self._unknown:
            return ShardsStatus.ACTIVE, None
        lowest = self._known.lowest()
        return (ShardsStatus.IDLE, None) if lowest is None else (ShardsStatus.ACTIVE, int(lowest[0]))

    def lowest_key(self) -> K | None:
        """Return the key that determines the minimum, or None if no key counts.

        If there are active keys without a watermark, it is the one that has had none for the longest time.
        """
        if self._unknown:
            return next(iter(self._unknown))
        lowest = self._known.lowest()
        return None if lowest is None else lowest[1]

    def keys_below(self, bound: int, count: int) -> list[K]:
        """Return the keys among the `count` lowest known watermarks whose watermark is below `bound`."""
        return [key for value, key in self._known.lowest_few(count) if value < bound]


def lowest_active(watermarks: Iterable[int | None]) -> tuple[ShardsStatus, int | None]:
    """Return the status and the minimum of the watermarks of active shards or workers."""
    minimum: ActiveMinimum[int] = ActiveMinimum()
    for number, watermark in enumerate(watermarks):
        minimum.set(number, True, watermark)
    return minimum.status()
