"""The watermark that sinks hear: the minimum over active shards of what was emitted, never falling, never above the global one (W1)."""

from __future__ import annotations

from ..coordination.active_minimum import ActiveMinimum
from ..coordination.watermark_tracker import SubtaskStatus
from ..shards.shard_table import ShardEntry


class LocalWatermark:
    """Owns the emitted watermarks of a subtask's shards and the last value that the sink was told."""

    def __init__(self) -> None:
        self._emitted = ActiveMinimum()
        self._told: int | None = None
        self._told_idle = False

    @property
    def value(self) -> int | None:
        """The last watermark told (epoch ms)."""
        return self._told

    def changed(self, entry: ShardEntry, holds_others: bool = True) -> None:
        """A shard emitted, or became idle, active, started or ended."""
        self._emitted.set(entry.key, holds_others and entry.is_active, entry.state.watermark)

    def forget(self, key: str) -> None:
        """A shard is no more."""
        self._emitted.forget(key)

    def advance(self, global_watermark: int | None) -> int | None:
        """The next value to tell the sink, or None when it did not rise or the global one is not known yet."""
        status, lowest = self._emitted.status()
        if status is SubtaskStatus.IDLE:
            return None
        self._told_idle = False
        if lowest is None or global_watermark is None:
            return None
        candidate = min(lowest, global_watermark)
        if self._told is not None and candidate <= self._told:
            return None
        self._told = candidate
        return candidate

    def turned_idle(self) -> bool:
        """True once whenever the subtask has become idle."""
        is_idle = self._emitted.status()[0] is SubtaskStatus.IDLE
        turned = is_idle and not self._told_idle
        self._told_idle = is_idle
        return turned
