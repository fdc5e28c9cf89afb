"""MemoryBudget: room is reserved before a read and settled after it, so that memory in flight is bounded (P6)."""

from __future__ import annotations

import asyncio

from ..min_heap import IndexedMinHeap
from ..settings import BudgetLimits
from ..shards.shard_table import ShardEntry

SMALLEST_ROOM_BYTES = 64 * 1024


class MemoryBudget:
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


MARKER_FIRST = float("-inf")


class PendingReads:
    """Owns who waits for room, and for what.

    A shard over a bound of its own (held at the gate, too much queued) is looked at again when it emitted; one that waits for the
    subtask's bytes when any are free, the lowest head watermark first. An emission costs the same with one shard held as with a thousand.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._waiting: dict[str, ShardEntry] = {}
        self._for_bytes = IndexedMinHeap()

    async def wait(self, entry: ShardEntry) -> int:
        """Wait for room; answers the bytes that the next read may bring."""
        entry.room = asyncio.get_running_loop().create_future()
        self._waiting[entry.key] = entry
        self._place(entry)
        try:
            return await entry.room
        finally:
            entry.room = None
            self._leave(entry)

    def emitted(self, entry: ShardEntry, readers: int) -> None:
        """A shard emitted: it may have room now, and so may others."""
        if entry.key in self._waiting:
            self._look_at(entry, readers)
        self._lend(readers)

    def look_at_all(self, readers: int) -> None:
        """Whatever changed."""
        for entry in list(self._waiting.values()):
            self._place(entry)
        self._lend(readers)
        for entry in list(self._waiting.values()):
            self._look_at(entry, readers)

    def _look_at(self, entry: ShardEntry, readers: int) -> None:
        """Give the shard room, or put it where it belongs."""
        if entry.room is None or entry.room.done():
            return
        room = self._budget.room_for(entry, readers)
        if room:
            entry.room.set_result(room)
            self._leave(entry)
        else:
            self._place(entry)

    def _lend(self, readers: int) -> None:
        """What is free goes to the lowest head first; what it leaves, to the next."""
        while (lowest := self._for_bytes.lowest()) is not None:
            entry = self._waiting[lowest[1]]
            if entry.room is None or entry.room.done():
                self._leave(entry)
                continue
            self._look_at(entry, readers)
            if entry.key in self._waiting:
                return

    def _place(self, entry: ShardEntry) -> None:
        head = entry.next_watermark
        waits_for_bytes = not self._budget.is_over_its_own_bounds(entry)
        self._for_bytes.set(entry.key, (MARKER_FIRST if head is None else head) if waits_for_bytes else None)

    def _leave(self, entry: ShardEntry) -> None:
        if self._waiting.get(entry.key) is entry:
            del self._waiting[entry.key]
            self._for_bytes.set(entry.key, None)
