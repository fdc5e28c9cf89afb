"""ActiveMinimum: the lowest watermark of those shards or subtasks that count, and their status as a whole."""

from collections.abc import Iterable
from typing import Generic

from ..min_heap import IndexedMinHeap, K
from .watermark_tracker import SubtaskStatus


class ActiveMinimum(Generic[K]):
    """Watermarks by key, of a subtask's shards or a group's subtasks; an active one without a watermark counts as lowest (W2)."""

    def __init__(self) -> None:
        self._known: IndexedMinHeap[K] = IndexedMinHeap()
        self._unknown: dict[K, None] = {}

    def set(self, key: K, active: bool, watermark: int | None) -> None:
        """Set the watermark of one key; an inactive one does not count."""
        self._known.set(key, watermark if active else None)
        if active and watermark is None:
            self._unknown[key] = None
        else:
            self._unknown.pop(key, None)

    def forget(self, key: K) -> None:
        """Remove a key."""
        self.set(key, False, None)

    def status(self) -> tuple[SubtaskStatus, int | None]:
        """ACTIVE with the lowest watermark (None while some have none), or IDLE when none counts."""
        if self._unknown:
            return SubtaskStatus.ACTIVE, None
        lowest = self._known.lowest()
        return (SubtaskStatus.IDLE, None) if lowest is None else (SubtaskStatus.ACTIVE, int(lowest[0]))

    def lowest_key(self) -> K | None:
        """The key with the minimum: of those without a watermark the one that has had none for longest."""
        if self._unknown:
            return next(iter(self._unknown))
        lowest = self._known.lowest()
        return None if lowest is None else lowest[1]

    def keys_below(self, bound: int, count: int) -> list[K]:
        """The keys among the `count` lowest known watermarks that lie below `bound`."""
        return [key for value, key in self._known.lowest_few(count) if value < bound]


def lowest_active(watermarks: Iterable[int | None]) -> tuple[SubtaskStatus, int | None]:
    """The status of a list: the watermarks of those that count."""
    minimum: ActiveMinimum[int] = ActiveMinimum()
    for number, watermark in enumerate(watermarks):
        minimum.set(number, True, watermark)
    return minimum.status()
