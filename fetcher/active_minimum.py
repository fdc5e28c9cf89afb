"""ActiveMinimum: the lowest watermark of the shards that count, and what a subtask may say of itself."""

from __future__ import annotations

from .global_watermark import SubtaskStatus
from .lowest import LowestOf


class ActiveMinimum:
    """Watermarks of active shards by key; an active shard without a value counts as lowest (W2)."""

    def __init__(self) -> None:
        self._known = LowestOf()
        self._unknown: set[str] = set()

    def set(self, key: str, active: bool, watermark: int | None) -> None:
        """State a shard; an inactive one does not count."""
        self._known.set(key, watermark if active else None)
        if active and watermark is None:
            self._unknown.add(key)
        else:
            self._unknown.discard(key)

    def forget(self, key: str) -> None:
        """A shard is no more."""
        self.set(key, False, None)

    def status(self) -> tuple[SubtaskStatus, int | None]:
        """ACTIVE with the lowest watermark (None while some shard has none), or IDLE when no shard counts."""
        if self._unknown:
            return SubtaskStatus.ACTIVE, None
        lowest = self._known.lowest()
        return (SubtaskStatus.IDLE, None) if lowest is None else (SubtaskStatus.ACTIVE, int(lowest[0]))

    def holder(self) -> str | None:
        """The shard that holds the minimum."""
        if self._unknown:
            return min(self._unknown)
        lowest = self._known.lowest()
        return None if lowest is None else lowest[1]
