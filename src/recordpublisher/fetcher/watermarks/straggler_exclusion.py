"""Detects shards that are so far behind that watermarks do not wait for them (W12)."""

from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from .watermark_tracker import WatermarkTracker


class StragglerDetector:
    """Owns which shards are excluded, and the highest watermark of this subtask. Updated at each heartbeat.

    A shard is excluded while its next record is more than `flink.watermark.alignment.max.lag` below the highest next record of the job. It
    is read and emitted as before, but neither the global watermark nor the sink's watermark waits for it. It counts again once it has
    caught up. The shard with the highest watermark is never excluded, so at least one shard counts.
    """

    def __init__(
        self,
        table: ShardTable,
        tracker: WatermarkTracker,
        max_lag_ms: int | None,
    ) -> None:
        self._table = table
        self._tracker = tracker
        self._max_lag_ms = max_lag_ms
        self.max_watermark: int | None = None
        """The highest watermark of this subtask's active shards (epoch ms): of the next queued record, or else of the last one."""

    def update(self) -> None:
        """Decide again for every shard."""
        watermarks = {entry.key: value for entry in self._table if (value := watermark_of(entry)) is not None}
        self.max_watermark = max(watermarks.values(), default=None)
        if self._max_lag_ms is None:
            return
        highest = self.job_max_watermark
        for entry in self._table:
            entry.mark_straggler(is_straggler(watermarks.get(entry.key), highest, self._max_lag_ms))

    @property
    def job_max_watermark(self) -> int | None:
        """The highest watermark of the job's active shards, as far as this subtask knows it (epoch ms)."""
        known = [each for each in (self.max_watermark, self._tracker.max_shard_watermark()) if each is not None]
        return max(known, default=None)


def is_straggler(watermark: int | None, highest: int | None, max_lag_ms: int) -> bool:
    """Return whether a shard is more than `max_lag_ms` below the highest watermark of the job (W12). It is not, if either is unknown."""
    return highest is not None and watermark is not None and highest - watermark > max_lag_ms


def watermark_of(entry: ShardEntry) -> int | None:
    """Return the watermark of a shard's next unwritten record, or else of its last one, or None if the shard is idle or not open."""
    if not entry.is_open or (entry.reading.is_idle and not entry.has_unwritten):
        return None
    return entry.alignment_watermark
