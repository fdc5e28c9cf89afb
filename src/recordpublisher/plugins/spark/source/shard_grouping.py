"""Which shards a batch reads, in which tasks: plain functions of the offset, so that a replay plans the same."""

from __future__ import annotations

from .batch_offset import BatchOffset, ShardOffset
from .lineage import is_startable

LONGEST_PATIENCE = 4
"""Doublings: 24 s instead of 1.5 s."""


def is_held(entry: ShardOffset, bound: int | None) -> bool:
    """Whether alignment keeps the shard from being read: its next record is known to lie above the bound (W8, W11)."""
    return bound is not None and entry.alignment_watermark is not None and entry.alignment_watermark > bound


def readable_shards(offset: BatchOffset, limited: bool = True) -> list[ShardOffset]:
    """The shards to read, in rotation when the batch's limit is below one record for each of them (all of them unless `limited`)."""
    entries = [entry for _, entry in sorted(offset.shards.items()) if _may_run(entry, offset)]
    if not limited or offset.limit is None or offset.limit >= len(entries):
        return entries
    start = offset.batch * offset.limit % len(entries)
    return (entries[start:] + entries[:start])[: offset.limit]


def task_groups(offset: BatchOffset) -> list[list[ShardOffset]]:
    """The runnable shards dealt over the offset's tasks; no group is empty. Another shard begins in each batch, where bytes may not be
    enough for one record of each."""
    entries = readable_shards(offset)
    tasks = min(offset.tasks, len(entries))
    return [_rotated(entries[group::tasks], offset.batch) for group in range(tasks)]


def records_per_shard(offset: BatchOffset) -> int | None:
    """Each shard's share of the batch's limit; at least one record, so that every shard progresses."""
    if offset.limit is None:
        return None
    return max(1, offset.limit // max(1, len(readable_shards(offset))))


def window_factor(group: list[ShardOffset]) -> int:
    """How many windows long a task may read: twice as long after each window that brought a shard neither records nor to its tip.

    A shard that was silent for days takes many empty answers to its next record, and every window begins them anew from the last
    record: with windows of one length it would never arrive. So do reads that wait out throttling.
    """
    return 1 << min(LONGEST_PATIENCE, max(entry.empty_windows for entry in group))


def _rotated(group: list[ShardOffset], batch: int) -> list[ShardOffset]:
    first = batch % len(group)
    return group[first:] + group[:first]


def _may_run(entry: ShardOffset, offset: BatchOffset) -> bool:
    if entry.state.ended or entry.done:
        return False
    return is_startable(entry, offset.shards) and not is_held(entry, offset.emit_limit)
