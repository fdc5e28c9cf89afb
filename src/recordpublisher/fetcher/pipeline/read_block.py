"""why_blocked finds why the next read of a shard waits, for memory, metrics, alarms and log."""

from enum import Enum

from ..settings import BudgetLimits
from ..shards.shard_entry import ShardEntry, ShardStage


class ReadBlock(Enum):
    """The condition that must end before the shard's next read."""

    PARENTS = "it waits for the end of its parents"
    ALIGNMENT = "held back by alignment"
    FULL_QUEUE = "its queue is full"
    MEMORY = "the memory of the subtask is used up"


LIMITS_OF_THE_SHARD = (ReadBlock.ALIGNMENT, ReadBlock.FULL_QUEUE)
"""Reasons for which the shard must emit before its next read, however much memory is free (P6)."""


def why_blocked(entry: ShardEntry, limits: BudgetLimits) -> ReadBlock | None:
    """Return why the shard's next read waits. Return None if it may start, is in progress, or no reader is wanted.

    A shard with an empty queue may always be read.
    """
    queue = entry.reading.queue
    if queue.unhandled:
        if entry.status.is_held:
            return ReadBlock.ALIGNMENT
        expected_bytes = entry.reservation.expected_bytes or 0
        if queue.bytes + expected_bytes > limits.shard_bytes or queue.unhandled >= limits.shard_records:
            return ReadBlock.FULL_QUEUE
    if entry.stage is ShardStage.WAITING:
        return ReadBlock.PARENTS
    return ReadBlock.MEMORY if entry.reservation.is_requested else None
