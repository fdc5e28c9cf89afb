"""Divides the shards of a batch among its tasks. Plain functions of the offset, so that a replay divides them the same way."""

from __future__ import annotations

from .offset import BatchOffset, ShardOffset
from .reshards import is_startable

MAX_DOUBLINGS = 4
"""A window grows from 1.5 s to 24 s at most."""


def is_held(entry: ShardOffset, emit_limit: int | None) -> bool:
    """Whether alignment keeps the shard from being read: its next record is known to lie above the limit (W8, W11)."""
    watermark = entry.alignment_watermark
    return emit_limit is not None and watermark is not None and watermark > emit_limit


def readable_shards(offset: BatchOffset, limited: bool = True) -> list[ShardOffset]:
    """The shards to read.

    When the batch's limit is below one record for each shard, successive batches read different shards. `limited=False`: all shards.
    """
    entries = [entry for _, entry in sorted(offset.shards.items()) if _is_readable(entry, offset)]
    if not limited or offset.limit is None or offset.limit >= len(entries):
        return entries
    start = offset.batch * offset.limit % len(entries)
    return (entries[start:] + entries[:start])[: offset.limit]


def task_groups(offset: BatchOffset) -> list[list[ShardOffset]]:
    """The shards to read, divided among the offset's tasks; no group is empty.

    Each batch begins with another shard, since a task's bytes may not be enough for one record of every shard.
    """
    entries = readable_shards(offset)
    tasks = min(offset.tasks, len(entries))
    return [_rotated(entries[group::tasks], offset.batch) for group in range(tasks)]


def records_per_shard(offset: BatchOffset) -> int | None:
    """Each shard's share of the batch's limit; at least one record, so that every shard progresses."""
    if offset.limit is None:
        return None
    return max(1, offset.limit // max(1, len(readable_shards(offset))))


def window_factor(group: list[ShardOffset]) -> int:
    """How many times longer than usual a task may read: doubled after each window in which a shard got no record and did not reach its tip.

    A shard that was silent for days returns many empty responses before its next record, and every window starts again at the last record.
    With windows of constant length it would never reach the next one. The same holds for reads that wait because of throttling.
    """
    return 1 << min(MAX_DOUBLINGS, max(entry.empty_windows for entry in group))


def _rotated(group: list[ShardOffset], batch: int) -> list[ShardOffset]:
    first = batch % len(group)
    return group[first:] + group[:first]


def _is_readable(entry: ShardOffset, offset: BatchOffset) -> bool:
    if entry.state.ended or entry.done:
        return False
    return is_startable(entry, offset.shards) and not is_held(entry, offset.emit_limit)
