"""ReadIntake queues the batches of the readers, settles their memory, and decides when the next read may start."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

from ..shards.shard_entry import ShardEntry
from ..shards.shard_reading import ReadMoment
from .memory_budget import MemoryBudget, PendingReads
from .read_block import ReadBlock
from .retention_gaps import RetentionGaps
from .suspension import SuspensionDetector


class ReadIntake:
    """The receiving side of every shard reader."""

    def __init__(
        self,
        budget: MemoryBudget,
        clock: Clock,
        suspension: SuspensionDetector,
        on_children_found: Callable[[Sequence[Shard]], None],
        gaps: RetentionGaps,
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._suspension = suspension
        self._on_children_found = on_children_found
        self._gaps = gaps
        self._pending_reads = PendingReads(budget)

    @property
    def used_bytes(self) -> int:
        """Bytes queued or reserved, as held in memory."""
        return self._budget.used

    def why_blocked(self, entry: ShardEntry) -> ReadBlock | None:
        """Return why a shard's next read waits, or None if it does not wait."""
        return self._budget.why_blocked(entry)

    def output_for(self, entry: ShardEntry) -> ShardIntake:
        """Return the ShardOutput of one shard."""
        return ShardIntake(self, entry)

    def share_among(self, readers: int) -> None:
        """Set how many shards are read from now on, and share the memory."""
        self._budget.share_among(readers)

    def reserve_first_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's first read. Return how many bytes it may read."""
        return self._budget.reserve_read(entry)

    async def put(self, entry: ShardEntry, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Return how many bytes that read may bring.

        Raises: DataLossError if records before the batch passed the retention unread, and the job does not accept that.
        """
        self._suspension.check()
        if self._gaps.needs_check(entry, batch):
            await self._gaps.check(entry, batch)
        batch = self._gaps.marked(entry, batch)
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        at = ReadMoment(now_ms, now, self._suspension.lost_seconds, self._gaps.read_ms(entry))
        self._gaps.on_read(entry, batch)
        self._budget.settle_read(entry, 0 if batch.is_empty_read else batch.held_bytes)
        self._budget.release(entry.on_read(batch, at))
        del batch  # so that its memory is freed as soon as it is emitted (P6)
        if entry.reading.needs_no_more:
            # There is no further read. The reader does not wait, because it may still have to report the shard's end.
            return 0
        read_bytes = self._budget.reserve_read(entry) or await self._pending_reads.wait(entry)
        self._gaps.on_request(entry)
        return read_bytes

    def end(self, entry: ShardEntry, children: Sequence[Shard]) -> None:
        """Note that a shard was read to its end. It has ended if nothing is queued, and drains otherwise."""
        self._budget.settle_read(entry, 0)
        self._on_children_found(children)
        entry.end_of_reading(children)

    def on_emitted(self, entry: ShardEntry, freed_bytes: int) -> None:
        """Start reads that wait for memory, because a shard has emitted and freed bytes."""
        self._budget.release(freed_bytes)
        self._pending_reads.on_emitted(entry)

    def retry_pending_reads(self) -> None:
        """Try every read that waits for memory. Called at each heartbeat."""
        self._pending_reads.retry_all()

    def drop(self, entry: ShardEntry) -> None:
        """Drop the queue of a shard, and the reservation for its next read."""
        self._budget.cancel_read(entry)
        self._budget.release(entry.drop_unread())


class ShardIntake:
    """The ShardOutput of one shard."""

    def __init__(self, intake: ReadIntake, entry: ShardEntry) -> None:
        self._intake = intake
        self._entry = entry

    def first_read_budget(self) -> int:
        """Reserve memory for the shard's first read. Return how many bytes it may bring."""
        return self._intake.reserve_first_read(self._entry)

    def put(self, batch: RecordBatch) -> Coroutine[Any, Any, int]:
        """Queue a batch of the shard, then wait until the next read may start. Return how many bytes that read may bring."""
        return self._intake.put(self._entry, batch)

    def end(self, children: Sequence[Shard]) -> None:
        """Note that the shard was read to its end, with its child shards."""
        self._intake.end(self._entry, children)
