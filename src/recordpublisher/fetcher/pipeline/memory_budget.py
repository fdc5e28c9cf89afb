"""Bounds the bytes of records in memory (P6): reserves them before each read, and says why a read waits."""

from __future__ import annotations

from enum import Enum

from ..settings import BudgetLimits
from ..shards.shard_entry import ShardEntry
from ..watermarks import IndexedMinHeap

MIN_READ_BYTES = 64 * 1024


class MemoryBudget:
    """Counts how many bytes a worker has queued or reserved, and decides which shard may read next.

    - A shard with an empty queue may always read one batch, even if that exceeds the budget.
    - The rest of the budget goes to the shard with the lowest next watermark first.
    - A shard that alignment holds back gets none of the rest. If it did, the shards ahead would use up the budget, and the shard that they
      wait for could never read.
    """

    def __init__(self, limits: BudgetLimits) -> None:
        self._limits = limits
        self.used = 0
        self._readers = 1

    def settle_read(self, entry: ShardEntry, arrived_bytes: int) -> None:
        """Count the bytes that a read has brought, instead of the bytes that were reserved for it.

        After each empty read the shard reserves less for its next one.
        """
        self.used += arrived_bytes - entry.reservation.bytes
        entry.reservation.settle(arrived_bytes)

    def release(self, freed_bytes: int) -> None:
        """Release bytes that were emitted or dropped."""
        self.used -= freed_bytes

    def cancel_read(self, entry: ShardEntry) -> None:
        """Release the reservation for a shard's next read, because the shard is not read any further."""
        self.used -= entry.reservation.bytes
        entry.reservation.reserve(0)

    def share_among(self, readers: int) -> None:
        """Set how many shards share the budget from now on."""
        self._readers = max(readers, 1)

    def reserve_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's next read. Return how many bytes it may read, or 0 if it must wait.

        The reservation is twice the expected size of the read, so that the same memory is not promised to many reads. A first read reserves
        the shard's fair share (the budget divided by the number of readers), because a thousand shards may start at once.

        A shard with queued records or dead letters may read only what is reserved. A shard with an empty queue may read its fair share at
        least, because much may arrive after a silence.
        """
        queue, reservation = entry.reading.queue, entry.reservation
        has_queue = bool(queue.unhandled)
        if has_queue and not self._may_queue_more(entry):
            return 0
        limits = self._limits
        self.used -= reservation.bytes
        smallest = min(MIN_READ_BYTES, limits.worker_bytes)
        fair_share = min(limits.shard_bytes, max(limits.worker_bytes // self._readers, smallest))
        least = smallest if has_queue else 0
        wanted = fair_share if reservation.expected_bytes is None else max(2 * reservation.expected_bytes, least)
        free = min(limits.shard_bytes - has_queue * queue.bytes, limits.worker_bytes - self.used)
        reservation.reserve(max(0, min(wanted, free)))
        self.used += reservation.bytes
        return reservation.bytes if has_queue else max(reservation.bytes, fair_share)

    def why_blocked(self, entry: ShardEntry) -> ReadBlock | None:
        """Return why a shard's next read waits under the limits of this budget, or None if it does not wait."""
        return why_blocked(entry, self._limits)

    def is_over_shard_limits(self, entry: ShardEntry) -> bool:
        """Return whether a shard must emit records before it may read more, however much memory is free."""
        return self.why_blocked(entry) in LIMITS_OF_THE_SHARD

    def _may_queue_more(self, entry: ShardEntry) -> bool:
        fits = self.used + (entry.reservation.expected_bytes or 0) <= self._limits.worker_bytes
        return fits and not self.is_over_shard_limits(entry)


BEFORE_ALL_WATERMARKS = float("-inf")


class PendingReads:
    """Keeps which shards wait for memory before their next read. There are two kinds:

    - A shard that alignment holds back, or whose queue is full, waits until it has emitted. Its read is not tried again before.
    - Any other shard waits for memory of the worker. These shards get it in the order of their next watermarks.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._waiting: dict[str, ShardEntry] = {}
        self._waiting_for_memory = IndexedMinHeap()

    async def wait(self, entry: ShardEntry) -> int:
        """Wait until the shard's next read may start. Return how many bytes it may read."""
        grant = entry.reservation.request()
        self._waiting[entry.key] = entry
        self._update_order(entry)
        try:
            return await grant
        finally:
            entry.reservation.withdraw()
            self._remove(entry)

    def on_emitted(self, entry: ShardEntry) -> None:
        """Retry the waiting read of a shard that has emitted records. Then give the memory that it has freed to other shards."""
        if entry.key in self._waiting:
            self._try_to_grant(entry)
        self._grant_in_order()

    def retry_all(self) -> None:
        """Start every waiting read for which memory is free now."""
        for entry in list(self._waiting.values()):
            self._update_order(entry)
        self._grant_in_order()
        for entry in list(self._waiting.values()):
            self._try_to_grant(entry)

    def _try_to_grant(self, entry: ShardEntry) -> None:
        if not entry.reservation.is_requested:
            return
        read_bytes = self._budget.reserve_read(entry)
        if read_bytes:
            entry.reservation.grant(read_bytes)
            self._remove(entry)
        else:
            self._update_order(entry)

    def _grant_in_order(self) -> None:
        """Give free memory to the shard with the lowest next watermark first, until one read does not fit."""
        while (lowest := self._waiting_for_memory.lowest()) is not None:
            entry = self._waiting[lowest[1]]
            if not entry.reservation.is_requested:
                self._remove(entry)
                continue
            self._try_to_grant(entry)
            if entry.key in self._waiting:
                return

    def _update_order(self, entry: ShardEntry) -> None:
        watermark = entry.next_watermark
        waits_for_memory = not self._budget.is_over_shard_limits(entry)
        order = BEFORE_ALL_WATERMARKS if watermark is None else watermark
        self._waiting_for_memory.set(entry.key, order if waits_for_memory else None)

    def _remove(self, entry: ShardEntry) -> None:
        if self._waiting.get(entry.key) is entry:
            del self._waiting[entry.key]
            self._waiting_for_memory.set(entry.key, None)


class ReadBlock(Enum):
    """The reason why a shard's next read waits."""

    PARENTS = "it waits for the end of its parents"
    ALIGNMENT = "held back by alignment"
    FULL_QUEUE = "its queue is full"
    MEMORY = "the memory of the worker is used up"


LIMITS_OF_THE_SHARD = (ReadBlock.ALIGNMENT, ReadBlock.FULL_QUEUE)
"""Reasons for a wait that ends only when the shard has emitted records, however much memory is free."""


def why_blocked(entry: ShardEntry, limits: BudgetLimits) -> ReadBlock | None:
    """Return why the shard's next read waits, or None if it does not wait.

    A shard without a reader does not wait for a read. A shard with an empty queue may always be read.
    """
    queue = entry.reading.queue
    if queue.unhandled:
        if entry.status.is_held:
            return ReadBlock.ALIGNMENT
        expected_bytes = entry.reservation.expected_bytes or 0
        if queue.bytes + expected_bytes > limits.shard_bytes or queue.unhandled >= limits.shard_records:
            return ReadBlock.FULL_QUEUE
    if entry.is_waiting:
        return ReadBlock.PARENTS
    return ReadBlock.MEMORY if entry.reservation.is_requested else None
