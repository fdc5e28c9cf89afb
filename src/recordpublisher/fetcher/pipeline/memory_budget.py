"""ByteBudget: room is reserved before a read and settled after it, so that memory in flight is bounded (P6)."""

from __future__ import annotations

from ..settings import BudgetLimits
from ..shards.shard_table import ShardEntry

SMALLEST_ROOM_BYTES = 64 * 1024


class ByteBudget:
    """Owns how many bytes are queued or reserved in a subtask, and decides who may read next.

    A shard whose queue is empty may always read one batch, over the budget if need be; the rest is lent to the lowest head watermark first;
    a shard held at the gate borrows none. Without this the shards ahead of the ceiling would eat the budget and the one that
    holds the minimum could never read.
    """

    def __init__(self, limits: BudgetLimits) -> None:
        self._limits = limits
        self.used = 0

    def settle(self, entry: ShardEntry, arrived_bytes: int) -> None:
        """A read was answered: its reservation becomes what it really brought. A shard that brings nothing reserves less each time."""
        self.used += arrived_bytes - entry.reserved_bytes
        entry.reserved_bytes = 0
        entry.expected_bytes = arrived_bytes or (entry.expected_bytes or 0) // 2

    def release(self, freed_bytes: int) -> None:
        """Emitted or forgotten bytes are free again."""
        self.used -= freed_bytes

    def room_for(self, entry: ShardEntry, readers: int) -> int:
        """The bytes that the next read may bring; 0 when it must wait. `readers` is how many shards share the budget.

        Twice what the last read brought is reserved, so that room is not promised to many at once. Who has records queued gets what is
        reserved and no more; who has none gets a fair share at least, since a shard that was silent may have much to say. A first read
        reserves its share: a thousand of them at the start are no surprise.
        """
        has_queue = bool(entry.queued_records)
        if has_queue and not self._may_borrow(entry):
            return 0
        limits = self._limits
        self.used -= entry.reserved_bytes
        smallest = min(SMALLEST_ROOM_BYTES, limits.subtask_bytes)
        share = min(limits.shard_bytes, max(limits.subtask_bytes // max(readers, 1), smallest))
        least = smallest if has_queue else 0
        wanted = share if entry.expected_bytes is None else max(2 * entry.expected_bytes, least)
        free = min(limits.shard_bytes - has_queue * entry.queued_bytes, limits.subtask_bytes - self.used)
        entry.reserved_bytes = max(0, min(wanted, free))
        self.used += entry.reserved_bytes
        return entry.reserved_bytes if has_queue else max(entry.reserved_bytes, share)

    def is_over_its_own_bounds(self, entry: ShardEntry) -> bool:
        """Whether a shard may borrow nothing before it has emitted, whatever is free: held at the gate, or too much queued."""
        limits = self._limits
        return entry.queued_records > 0 and (
            entry.held_since is not None
            or entry.queued_bytes + (entry.expected_bytes or 0) > limits.shard_bytes
            or entry.queued_records >= limits.shard_records
        )

    def _may_borrow(self, entry: ShardEntry) -> bool:
        fits = self.used + (entry.expected_bytes or 0) <= self._limits.subtask_bytes
        return fits and not self.is_over_its_own_bounds(entry)
