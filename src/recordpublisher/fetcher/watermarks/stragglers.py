"""StragglerDetector: which shards lie so far behind that nobody shall wait for them (W12), and how far everybody lies apart."""

from __future__ import annotations

from collections.abc import Callable

from recordpublisher.publishers.records import RecordBatch

from ..coordination.watermark_tracker import WatermarkTracker
from ..shards.shard_table import ShardEntry, ShardTable


class StragglerDetector:
    """Looks at every heartbeat. Owns which shards are left out, and the furthest watermark of this subtask.

    A shard is left out while its next record lies more than `flink.watermark.alignment.max.lag` below the furthest next record of the job:
    it is read and emitted as before, holds neither the global watermark nor the sink's, and counts again once it has caught up. The
    furthest shard is never left out, so that somebody always counts.
    """

    def __init__(
        self,
        table: ShardTable,
        tracker: WatermarkTracker,
        max_lag_ms: int | None,
        changed: Callable[[ShardEntry], None],
    ) -> None:
        self._table = table
        self._tracker = tracker
        self._max_lag_ms = max_lag_ms
        self._changed = changed
        self.furthest: int | None = None
        """Where the furthest active shard of this subtask stands (epoch ms): its next queued record, or its last."""

    def look(self) -> None:
        """Judge every shard again."""
        places = {entry.key: place for entry in self._table if (place := place_of(entry)) is not None}
        self.furthest = max(places.values(), default=None)
        if self._max_lag_ms is None:
            return
        limit = self.furthest_of_all
        for entry in self._table:
            place = places.get(entry.key)
            is_left = limit is not None and place is not None and limit - place > self._max_lag_ms
            if is_left != entry.left_behind:
                entry.left_behind = is_left
                self._changed(entry)

    @property
    def furthest_of_all(self) -> int | None:
        """Where the furthest shard of the job stands, as far as it is known here (epoch ms)."""
        known = [each for each in (self.furthest, self._tracker.max_shard_watermark()) if each is not None]
        return max(known, default=None)


def place_of(entry: ShardEntry) -> int | None:
    """Where a shard stands (epoch ms) that is neither idle nor over: its next queued record, or else its last one."""
    if not entry.is_open or (entry.idle and not entry.queued_records):
        return None
    return entry.alignment_watermark


def late_after_idle(batch: RecordBatch, before: int | None, value: int | None) -> int:
    """How many records lie below the global watermark `value`, and were not late in their shard, whose watermark stood at `before`.

    A shard that is waited for holds the global watermark at its next record, so only one that was idle, left out, or began below (W5)
    has any. `value` is that from before the write: afterwards the next record counts already.
    """
    if value is None or (before is not None and before >= value):
        return 0
    own, count = before, 0
    for time, following in zip(batch.event_time_column, batch.watermarks or (), strict=True):
        if time < value and (own is None or time >= own):
            count += 1
        own = following
        if own >= value:
            break
    return count
