"""ShardQueues: queues the batches of the readers, and derives idleness, distance to the tip and memory use from each read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

from ..shards.shard_entry import ShardEntry, ShardStage
from .memory_budget import MemoryBudget, PendingReads
from .retention_gaps import RetentionGaps
from .suspension import SuspensionDetector


class ShardQueues:
    """The receiving side of every shard reader."""

    def __init__(
        self,
        budget: MemoryBudget,
        idle_interval_ms: int,
        clock: Clock,
        suspension: SuspensionDetector,
        on_changed: Callable[[ShardEntry], None],
        on_children_found: Callable[[Sequence[Shard]], None],
        gaps: RetentionGaps,
    ) -> None:
        self._budget = budget
        self._idle_interval_ms = idle_interval_ms
        self._clock = clock
        self._suspension = suspension
        self._on_changed = on_changed
        self._on_children_found = on_children_found
        self._gaps = gaps
        self._pending_reads = PendingReads(budget)
        self.readers = 1

    @property
    def used_bytes(self) -> int:
        """Bytes queued or reserved, as held in memory."""
        return self._budget.used

    def output_for(self, entry: ShardEntry) -> ShardQueue:
        """The ShardOutput of one shard."""
        return ShardQueue(self, entry)

    def reserve_first_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's first read. Returns how many bytes it may read."""
        return self._budget.reserve_read(entry, self.readers)

    async def put(self, entry: ShardEntry, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Returns how many bytes that may read.

        Raises: DataLossError when records before the batch passed the retention unread, and the job does not accept that.
        """
        self._suspension.check()
        if self._gaps.needs_check(entry, batch):
            await self._gaps.check(entry, batch)
        self._record_read(entry, batch)
        self._gaps.on_read(entry, batch)
        is_queued = len(batch) > 0 or batch.read_position is not None
        self._budget.settle_read(entry, batch.held_bytes if is_queued else 0)
        if is_queued:
            self._budget.release(entry.push(batch))
        self._on_changed(entry)
        del batch  # frees its memory as soon as it is emitted (P6)
        if (
            entry.reading_finished
        ):  # no wait for memory: there is no further read, and the reader may still have to report the shard's end
            return 0
        budget = self._budget.reserve_read(entry, self.readers) or await self._wait_for_memory(entry)
        self._gaps.on_request(entry)
        return budget

    def end(self, entry: ShardEntry, children: Sequence[Shard]) -> None:
        """A shard was read to its end: it has ended when nothing is queued, and drains otherwise."""
        self._budget.settle_read(entry, 0)
        entry.stage = ShardStage.DRAINING
        entry.children = tuple(children)
        if not entry.queue and not entry.is_writing:  # a batch that is being written is not emitted yet (S2)
            entry.end()
        self._on_children_found(children)
        self._on_changed(entry)

    def on_emitted(self, entry: ShardEntry, freed_bytes: int) -> None:
        """A shard has emitted and freed bytes: start reads that wait for memory."""
        self._budget.release(freed_bytes)
        self._pending_reads.on_emitted(entry, self.readers)

    def retry_pending_reads(self) -> None:
        """Try every read that waits for memory; called at each heartbeat."""
        self._pending_reads.retry_all(self.readers)

    def drop(self, entry: ShardEntry) -> None:
        """Drop what a shard has queued, at the end of a run."""
        self._budget.release(entry.drop_queue())

    async def _wait_for_memory(self, entry: ShardEntry) -> int:
        entry.idleness.on_interruption()
        return await self._pending_reads.wait(entry)

    def _record_read(self, entry: ShardEntry, batch: RecordBatch) -> None:
        if batch.millis_behind_latest is not None:
            entry.metrics.millis_behind_latest = batch.millis_behind_latest
        entry.last_read_ms = self._clock.now_ms()
        entry.at_tip = batch.millis_behind_latest == 0
        if entry.at_tip:
            now_ms = self._clock.now_ms()
            entry.has_seen_tip |= not batch.child_shards  # a batch with children is followed by the shard's end
            entry.tip_seen_ms = (entry.tip_seen_ms[0] if entry.tip_seen_ms else now_ms, now_ms)
        if entry.at_tip and not len(batch) and not entry.queued_records:
            entry.idleness.on_empty_read(self._clock.monotonic(), self._suspension.lost_seconds)
            entry.tip_ms = self._gaps.read_ms(entry)
        else:
            entry.idleness.on_record()
        entry.idle = entry.idleness.is_idle(self._idle_interval_ms)


class ShardQueue:
    """The ShardOutput of one shard."""

    def __init__(self, queues: ShardQueues, entry: ShardEntry) -> None:
        self._queues = queues
        self._entry = entry

    def first_read_budget(self) -> int:
        """See ShardOutput."""
        return self._queues.reserve_first_read(self._entry)

    def put(self, batch: RecordBatch) -> Coroutine[Any, Any, int]:
        """See ShardOutput."""
        return self._queues.put(self._entry, batch)

    def end(self, children: Sequence[Shard]) -> None:
        """See ShardOutput."""
        self._queues.end(self._entry, children)
