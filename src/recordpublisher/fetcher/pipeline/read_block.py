"""why_blocked: why the next read of a shard waits. Memory, metrics, alarms and log ask here."""

from enum import Enum

from ..settings import BudgetLimits
from ..shards.shard_entry import ShardEntry, ShardStage


class ReadBlock(Enum):
    """What must happen before a shard may be read on."""

    PARENTS = "it waits for the end of its parents"
    ALIGNMENT = "held back by alignment"
    FULL_QUEUE = "its queue is full"
    MEMORY = "the memory of the subtask is used up"


LIMITS_OF_THE_SHARD = (ReadBlock.ALIGNMENT, ReadBlock.FULL_QUEUE)
"""The shard must emit before it may be read on, however much memory is free (P6)."""


def why_blocked(entry: ShardEntry, limits: BudgetLimits) -> ReadBlock | None:
    """None: the read may start, or is under way, or no reader is wanted. A shard with an empty queue may always be read."""
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
