"""The watermark that the sink receives: the lowest emitted one of the active shards, never above the global watermark (W1).

The global watermark is computed from what `Alignment` reports.
"""

from ..active_minimum import ActiveMinimum, ShardsStatus
from ..shards.shard_entry import ShardEntry


class LocalWatermark:
    """Owns the emitted watermark of each shard, and the last watermark that the sink received. It never falls."""

    def __init__(self) -> None:
        self._emitted = ActiveMinimum()
        self._last: int | None = None
        self._was_idle = False

    @property
    def value(self) -> int | None:
        """The last watermark that the sink received (epoch ms)."""
        return self._last

    def update(self, entry: ShardEntry, holds_watermark: bool = True) -> None:
        """Register that a shard emitted, or became idle, active, started or ended."""
        self._emitted.set(entry.key, holds_watermark and entry.is_active, entry.state.watermark)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._emitted.forget(key)

    def advance(self, global_watermark: int | None) -> int | None:
        """Advance to the next watermark and return it. Return None if it did not rise, or if the global watermark is not known yet."""
        status, lowest = self._emitted.status()
        if status is ShardsStatus.IDLE:
            return None
        self._was_idle = False
        if lowest is None or global_watermark is None:
            return None
        candidate = min(lowest, global_watermark)
        if self._last is not None and candidate <= self._last:
            return None
        self._last = candidate
        return candidate

    def take_idle_transition(self) -> bool:
        """Return whether the shards became idle since the last call."""
        is_idle = self._emitted.status()[0] is ShardsStatus.IDLE
        became_idle = is_idle and not self._was_idle
        self._was_idle = is_idle
        return became_idle
