"""ShardEntry: everything that changes about one shard of a subtask: emitted state, queue, idleness, counters."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, to_millis
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..watermark_functions import is_active, shard_watermark
from .idleness import IdlenessTimer
from .shard_state import ShardState


class ShardStage(Enum):
    """The stages of a shard in a subtask, in this order.

    WAITING: its parents are not finished (S2). READING: a publisher reads it. DRAINING: it was read to its end, records are still
    queued. ENDED: its last record was emitted.
    """

    WAITING = auto()
    READING = auto()
    DRAINING = auto()
    ENDED = auto()


@dataclass(slots=True)
class ReadProgress:
    """How far a shard was read, which may be further than it was emitted (S5).

    - `position`: the last record read; None: the shard's beginning.
    - `seen_ms`: its arrival, or the last read at the tip, whichever is later (epoch ms); None: nothing was read.
    - `lost_seconds`: what the suspension detector had counted when the next read was requested.
    - `logged_ms`: when a gap was last logged.
    """

    position: SequenceNumber | None = None
    seen_ms: int | None = None
    lost_seconds: float = 0.0
    logged_ms: int | None = None


@dataclass(slots=True)
class ShardEntry:
    """One shard of a subtask. The queue holds batches that were read and not emitted.

    - `offset`: how many records of the queue's first batch were emitted already.
    - `reserved_bytes`: memory reserved for the next read; `expected_bytes`: the size of the last read, None before the first.
    - `read_grant`: resolved with a number of bytes when a read that waits for memory may start.
    - `at_tip`: the last read stood at the tip; `has_seen_tip`: some read of this run did; `tip_seen_ms`: when the first and the last such
      read returned (epoch ms). `last_read_ms`: when the last read of any kind returned.
    - `reading_finished`: a bounded run needs no more reads of the shard.
    - `awaits_child_takeover`: the shard ended, and a child has no reader yet (W5).
    - `is_excluded`: so far behind that watermarks do not wait for it (W12).
    - `taken_over_below`: the global watermark when the shard was taken over from another process (epoch ms), below which it may begin (E8).
    - `progress`: how far it was read.
    - `held_since`: since when alignment holds the shard back (monotonic seconds); `held_seconds`: for how long it did before.
    """

    shard: Shard
    state: ShardState
    stage: ShardStage = ShardStage.WAITING
    queue: deque[RecordBatch] = field(default_factory=deque)
    offset: int = 0
    queued_bytes: int = 0
    queued_records: int = 0
    reserved_bytes: int = 0
    is_writing: bool = False
    expected_bytes: int | None = None
    read_grant: asyncio.Future[int] | None = None
    idleness: IdlenessTimer = field(default_factory=IdlenessTimer)
    at_tip: bool = False
    has_seen_tip: bool = False
    tip_seen_ms: tuple[int, int] | None = None
    reading_finished: bool = False
    idle: bool = False
    awaits_child_takeover: bool = False
    is_excluded: bool = False
    tip_ms: int | None = None
    held_since: float | None = None
    held_seconds: float = 0.0
    children: tuple[Shard, ...] = ()
    records: int = 0
    payload_bytes: int = 0
    last_emit_ms: int | None = None
    owned_since_ms: int | None = None
    last_read_ms: int | None = None
    late_after_idle: int = 0
    late_after_takeover: int = 0
    taken_over_below: int | None = None
    progress: ReadProgress = field(default_factory=ReadProgress)
    metrics: ShardMetrics = field(default_factory=ShardMetrics)

    @property
    def key(self) -> str:
        """`stream/shard-id`."""
        return self.shard.key

    @property
    def snapshot_state(self) -> ShardState:
        """The state that a snapshot stores: what was emitted, when a read last stood at the tip, whether the shard has started (S5)."""
        tip_ms = self.state.tip_ms if self.tip_ms is None else self.tip_ms
        return replace(self.state, tip_ms=tip_ms, waiting=self.stage is ShardStage.WAITING)

    @property
    def is_open(self) -> bool:
        """Whether the shard may still emit records: it is being read, or has records queued."""
        return self.stage in (ShardStage.READING, ShardStage.DRAINING)

    @property
    def is_active(self) -> bool:
        """Whether watermarks wait for the shard.

        They do while it is open, unless it is excluded, or idle with an empty queue (W4). They also do after its end until its children
        have readers (W5).
        """
        if self.awaits_child_takeover:
            return True
        return is_active(self.is_open and not self.is_excluded, self.idle, self.queued_records > 0)

    @property
    def next_watermark(self) -> int | None:
        """The watermark of the next record to emit; None when the queue is empty or begins with a batch without records."""
        if not self.queue or not self.queue[0].watermarks:
            return None
        return self.queue[0].watermarks[self.offset]

    @property
    def alignment_watermark(self) -> int | None:
        """The watermark with which the shard counts for the global one (W1)."""
        return shard_watermark(self.next_watermark, self.state.watermark)

    def push(self, batch: RecordBatch) -> int:
        """Queue a batch at the end. Returns the bytes that this freed.

        Of several batches without records in a row only the last is kept: while a sink stalls they would pile up without a bound (P6).
        """
        freed = 0
        if self.queue and not len(batch) and not len(self.queue[-1]):
            freed = self.queue.pop().held_bytes
            self.queued_bytes -= freed
        self.queue.append(batch)
        self.queued_bytes += batch.held_bytes
        self.queued_records += len(batch)
        return freed

    def pop(self, count: int) -> tuple[RecordBatch, int]:
        """Take the next `count` records of the first batch. Returns them and the bytes freed: 0 while the batch has more records."""
        head = self.queue[0]
        stop = self.offset + count
        part = head.slice(self.offset, stop)
        self.queued_records -= len(part)
        if stop < len(head):
            self.offset = stop
            return part, 0
        self.queue.popleft()
        self.offset = 0
        self.queued_bytes -= head.held_bytes
        return part, head.held_bytes

    def count_late(self, records: int) -> None:
        """Count records of a batch that is below the global watermark, before `advance`."""
        watermark, limit = self.state.watermark, self.taken_over_below
        if limit is not None and (watermark is None or watermark < limit):
            self.late_after_takeover += records
        else:
            self.late_after_idle += records

    def advance(self, batch: RecordBatch, now_ms: int) -> None:
        """Move the position behind a batch that was written. Emitting and advancing are one step (S1)."""
        self.state = _state_after(self.state, batch)
        if len(batch):
            self.records += len(batch)
            self.payload_bytes += batch.raw_bytes
            self.last_emit_ms = now_ms
        if self.stage is ShardStage.DRAINING and not self.queue:
            self.end()

    def end(self) -> None:
        """Mark the shard as ended: its last record was emitted (S2)."""
        self.stage = ShardStage.ENDED
        self.state = replace(self.state, ended=True, continuation=None)

    def drop_queue(self) -> int:
        """Drop what was read but not emitted, at the end of a run. Returns the bytes freed."""
        freed = self.queued_bytes + self.reserved_bytes
        self.queue.clear()
        self.offset = self.queued_bytes = self.queued_records = self.reserved_bytes = 0
        self.read_grant = None
        self.is_writing = False
        return freed


def _state_after(state: ShardState, batch: RecordBatch) -> ShardState:
    position = batch.read_position
    if position is None:
        return state
    if position.continuation:
        return replace(state, continuation=position.sequence)
    if not len(batch):
        return replace(state, position=position, continuation=None)
    watermark = batch.watermark if batch.watermark is not None else state.watermark
    return replace(
        state,
        position=position,
        continuation=None,
        watermark=watermark,
        arrival_ms=to_millis(batch.records[-1].arrival),
    )
