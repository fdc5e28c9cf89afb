"""ShardQueues: what readers bring goes into the shard's queue, with what it says of silence, tip and room."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

from ..shards.shard_table import ShardEntry, ShardStage
from .memory_budget import MemoryBudget, PendingReads
from .suspension import SuspensionDetector


class ShardQueues:
    """The fetcher's side of every ShardOutput."""

    def __init__(
        self,
        budget: MemoryBudget,
        idle_interval_ms: int,
        clock: Clock,
        pulse: SuspensionDetector,
        changed: Callable[[ShardEntry], None],
        found_children: Callable[[Sequence[Shard]], None],
    ) -> None:
        self._budget = budget
        self._idle_interval_ms = idle_interval_ms
        self._clock = clock
        self._pulse = pulse
        self._changed = changed
        self._found_children = found_children
        self._waiting = PendingReads(budget)
        self.readers = 1

    @property
    def used_bytes(self) -> int:
        """Bytes queued or reserved, as held in memory."""
        return self._budget.used

    def output_of(self, entry: ShardEntry) -> ShardQueue:
        """The ShardOutput of one shard."""
        return ShardQueue(self, entry)

    def first_room(self, entry: ShardEntry) -> int:
        """The bytes that a shard's first read may bring, reserved."""
        return self._budget.room_for(entry, self.readers)

    async def put(self, entry: ShardEntry, batch: RecordBatch) -> int:
        """Queue a batch and wait for room for the next."""
        self._pulse.look()
        self._take_evidence(entry, batch)
        is_queued = len(batch) > 0 or batch.read_position is not None
        self._budget.settle(entry, batch.held_bytes if is_queued else 0)
        if is_queued:
            self._budget.release(entry.push(batch))
        self._changed(entry)
        del batch  # once it is emitted nobody holds it (P6)
        if entry.rests:  # nothing more is read; a shard whose answer was its last comes to its end all the same
            return 0
        return self._budget.room_for(entry, self.readers) or await self._wait_for_room(entry)

    def end(self, entry: ShardEntry, children: Sequence[Shard]) -> None:
        """A shard was read to its end: it drains, or has ended when nothing is queued."""
        self._budget.settle(entry, 0)
        entry.stage = ShardStage.DRAINING
        entry.children = tuple(children)
        if not entry.queue and not entry.is_writing:  # a write that is going on is still to be emitted (S2)
            entry.end()
        self._found_children(children)
        self._changed(entry)

    def emitted(self, entry: ShardEntry, freed_bytes: int) -> None:
        """An emission gave bytes back: wake who waits for room."""
        self._budget.release(freed_bytes)
        self._waiting.emitted(entry, self.readers)

    def tick(self) -> None:
        """The heartbeat: look at all who wait for room."""
        self._waiting.look_at_all(self.readers)

    def forget(self, entry: ShardEntry) -> None:
        """Drop what a shard has queued, at the end of a run."""
        self._budget.release(entry.drop_queue())

    async def _wait_for_room(self, entry: ShardEntry) -> int:
        entry.silence.interrupted()
        return await self._waiting.wait(entry)

    def _take_evidence(self, entry: ShardEntry, batch: RecordBatch) -> None:
        if batch.millis_behind_latest is not None:
            entry.metrics.millis_behind_latest = batch.millis_behind_latest
        entry.answered_ms = self._clock.now_ms()
        entry.at_tip = batch.millis_behind_latest == 0
        if entry.at_tip:
            now_ms = self._clock.now_ms()
            entry.seen_tip |= not batch.child_shards  # with children it is the end that comes next
            entry.tip_seen_ms = (entry.tip_seen_ms[0] if entry.tip_seen_ms else now_ms, now_ms)
        if entry.at_tip and not len(batch) and not entry.queued_records:
            entry.silence.saw_silence(self._clock.monotonic(), self._pulse.lost_seconds)
            entry.tip_ms = self._clock.now_ms()
        else:
            entry.silence.saw_life()
        entry.idle = entry.silence.lasts(self._idle_interval_ms)


class ShardQueue:
    """One shard's face of the intake."""

    def __init__(self, intake: ShardQueues, entry: ShardEntry) -> None:
        self._intake = intake
        self._entry = entry

    def first_room(self) -> int:
        """See ShardOutput."""
        return self._intake.first_room(self._entry)

    def put(self, batch: RecordBatch) -> Coroutine[Any, Any, int]:
        """See ShardOutput."""
        return self._intake.put(self._entry, batch)

    def end(self, children: Sequence[Shard]) -> None:
        """See ShardOutput."""
        self._intake.end(self._entry, children)
