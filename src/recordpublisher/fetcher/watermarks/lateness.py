"""Lateness that idleness brought: records that the global watermark had passed although they were in time in their shard (W13)."""

from __future__ import annotations

from recordpublisher.publishers.records import RecordBatch


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
