"""One shard of a worker (`ShardEntry`): its stage, what was read and emitted of it, and how it counts for watermarks.

`ShardStage` names the stages, and `ShardEmission` keeps how far the shard was emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.records import RecordBatch, millis_behind_at, to_millis
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..global_watermark_rules import is_active, shard_watermark
from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from .idleness import IdlenessTimer, WatermarkStatus
from .read_state import ReadMoment, ReadProgress, ReadReservation, ShardReadState, latest
from .shard_state import ShardState


class ShardStage(Enum):
    """The stages of a shard in a worker, in this order. Only DRAINING may return to READING, if records that were read are dropped.

    - WAITING: the shard waits until its parents were read to their ends and emitted.
    - READING: a publisher reads the shard.
    - DRAINING: the shard was read to its end, and records are still queued.
    - ENDED: the shard's last record was emitted.
    """

    WAITING = auto()
    READING = auto()
    DRAINING = auto()
    ENDED = auto()


class ShardListener:
    """Is notified of events of shards. This base class does nothing: it stands in for the listener of a shard that was removed."""

    def on_listed(self, shard: Shard, is_in_listing: bool) -> None:
        """Called when the table has learned of a shard, whichever worker owns it.

        `is_in_listing`: whether a listing has shown the shard. If not, this is called again when the first listing has it.
        """

    def on_added(self, entry: ShardEntry) -> None:
        """Called when a shard was added to the table."""

    def on_changed(self, entry: ShardEntry) -> None:
        """Called when a shard's queue, stage or idleness has changed, or when watermarks begin or cease to wait for it."""

    def on_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Called when a batch of a shard was emitted (written to the sink); `on_changed` follows."""

    def on_ended(self, entry: ShardEntry) -> None:
        """Called when the last record of a shard was emitted."""

    def on_removed(self, key: str) -> None:
        """Called when a shard left the table."""


NO_LISTENER = ShardListener()


class ShardEntry:
    """One shard that a worker reads. It makes sure that records are read, emitted and ended in order, and notifies the listener
    of each change.

    The docstring of each command names its only caller. Any code may read the parts (`reading`, `emission`, `status`, `reservation`,
    `progress`), but only these commands change them, with three exceptions: MemoryBudget and PendingReads change `reservation`,
    RetentionGaps changes `progress`, and Alignment calls `status.set_held`.
    """

    def __init__(
        self,
        shard: Shard,
        state: ShardState,
        listener: ShardListener = NO_LISTENER,
        *,
        owned_since_ms: int | None = None,
        taken_over_below: int | None = None,
        idle_intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD,
        worker_read_durations: Histogram | None = None,
    ) -> None:
        self.shard = shard
        self.owned_since_ms = owned_since_ms
        self.reading = ShardReadState(IdlenessTimer(idle_intervals))
        self.status = WatermarkStatus()
        self.reservation = ReadReservation()
        self.progress = ReadProgress()
        self.metrics = ShardMetrics(worker_read_durations=worker_read_durations or Histogram())
        self.emission = ShardEmission(state, taken_over_below, self.metrics)
        self.is_removed = False
        self.has_ended_for_now = False
        """Whether the shard has ended for this run only, because a later run may find more of its records (`Shard.may_grow`)."""
        self._listener = listener

    # --- commands ---------------------------------------------------------------------------------------------------------------

    def start_reading(self, inherited_watermark: int | None = None) -> None:
        """Mark the shard as being read. Called by ReadTasks.

        `inherited_watermark`: the lowest watermark of the shard's parents. A shard that has waited for them begins at it.
        """
        self._check(self.stage in (ShardStage.WAITING, ShardStage.READING), "is read again")
        self.emission.start_at(inherited_watermark)
        self.reading.start()
        self._listener.on_changed(self)

    def start_after_parents(self, parents: Iterable[ShardEntry]) -> None:
        """Set the time at which an unread shard begins: until then its parents were open, so all of its records are younger."""
        if self.state.position is None and self.state.seen_ms is None:
            self.emission.start_after_parents(
                latest(*(latest(each.progress.open_ms, each.state.seen_ms) for each in parents))
            )

    def on_read(self, batch: RecordBatch, at: ReadMoment) -> int:
        """Queue a batch that a read returned. Called by ReadIntake.

        Return the number of bytes freed. A batch without records may replace the batch before it, which frees memory.
        """
        self.metrics.saw_distance(batch.millis_behind_latest)
        self.reading.on_read(batch, at, self.emission.is_writing)
        freed = 0 if batch.is_empty_read else self.reading.queue.push(batch)
        self._listener.on_changed(self)
        return freed

    def end_of_reading(self, children: Sequence[Shard]) -> None:
        """Mark the shard as read to its end. Called by ReadIntake, and by ShardLifecycle if the shard's stream was deleted."""
        self._check(self.is_reading, "is read to its end")
        self.reading.end(children)
        self._on_progress()

    def reach_run_end(self, first_past: str) -> None:
        """Note that the shard was read to the position at which this run ends in it (`Bounds.ends`). Called by QueueingShardOutput."""
        self.reading.reach_run_end(first_past)
        self._listener.on_changed(self)

    def finish_reading(self) -> None:
        """Mark the shard as not to be read again in this run. Called by ReadTasks.

        Records that are already queued are still emitted. The listener is not notified.
        """
        self.reading.finish()

    def abandon(self) -> None:
        """Mark the shard as no longer read in this process. The listener is not notified. Called by ReadTasks."""
        self.reading.abandon()

    def end_run(self) -> None:
        """Reset what counts for one run only, because the run is over. The listener is not notified. Called by ReadTasks."""
        if self.has_ended_for_now:
            self.has_ended_for_now = False
            self.reading.reopen()
            self.emission.reopen()
        self.reading.reset()
        self.emission.reset()

    def drop_unread(self) -> int:
        """Drop the records that were read and not emitted; they are read again later. Return the bytes freed. Called by ReadIntake.

        The distance to the tip (`millis_behind_latest`) is then measured from the last emitted record. If none was emitted, it is measured
        from the first dropped record.
        """
        unread = self.reading.queue.arrival_ms
        if unread is not None and self.metrics.millis_behind_latest >= 0:
            done_ms = unread[0] if self.state.arrival_ms is None else self.state.arrival_ms
            self.metrics.saw_distance(millis_behind_at(self.metrics.millis_behind_latest, unread[1], done_ms))
        freed = self.reading.drop_unread()
        self._listener.on_changed(self)
        return freed

    def take(self, count: int) -> tuple[RecordBatch, int]:
        """Take the next `count` records of the first queued batch, to write them. Return them, and the bytes freed. Called by Emitter.

        Until `advance` the records count as being written: the shard does not end, and watermarks wait for them. The listener is not
        notified before `advance`. Otherwise alignment would compare the shard by the next record, and could emit that one too early.
        """
        self.emission.begin_write(self.next_watermark, self.reading.queue.oldest_ms)
        return self.reading.queue.pop(count)

    def advance(self, batch: RecordBatch, global_watermark: int | None, now_ms: int) -> None:
        """Move the position past a batch that was written, in the same step as the write. Called by Emitter.

        `global_watermark`: its value before the write.
        """
        self.emission.advance(batch, global_watermark, now_ms)
        if batch.skipped:
            self.metrics.add("skipped_records", batch.skipped_count)
        self._listener.on_emitted(self, batch)
        self._on_progress()

    def mark_straggler(self, is_straggler: bool) -> None:
        """Set whether the shard is a straggler, for which watermarks do not wait. Called by StragglerDetector."""
        if self.status.mark_straggler(is_straggler):
            self._listener.on_changed(self)

    def await_children(self, awaits: bool) -> None:
        """Set whether watermarks wait for the ended shard until its children have readers. Called by EndedParentHold."""
        if self.status.await_children(awaits):
            self._listener.on_changed(self)

    def on_suspension(self) -> None:
        """Note that the process was suspended, so that the shard is not idle until it is read again. ShardLifecycle calls this."""
        if self.reading.on_suspension():
            self._listener.on_changed(self)

    def remove(self) -> None:
        """Mark the shard as removed from the table: later events, such as the end of a write, have no effect. Called by ShardTable."""
        self.is_removed = True
        self._listener = NO_LISTENER

    # --- queries ----------------------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of the shard: `stream/shard-id`."""
        return self.shard.key

    @property
    def state(self) -> ShardState:
        """How far the shard was emitted: the state after the last emitted record."""
        return self.emission.state

    @property
    def stage(self) -> ShardStage:
        """The shard's stage, which follows from how far it was read and how far it was emitted."""
        if self.has_ended:
            return ShardStage.ENDED
        if self.reading.has_reached_end:
            return ShardStage.DRAINING
        return ShardStage.READING if self.reading.has_started else ShardStage.WAITING

    @property
    def is_waiting(self) -> bool:
        """Whether the shard waits until its parents are finished."""
        return self.stage is ShardStage.WAITING

    @property
    def is_reading(self) -> bool:
        """Whether a publisher reads the shard."""
        return self.stage is ShardStage.READING

    @property
    def has_ended(self) -> bool:
        """Whether the shard's last record was emitted."""
        return self.emission.state.ended

    @property
    def snapshot_state(self) -> ShardState:
        """The state that a snapshot stores: how far the shard was emitted, its last read at the tip, and whether it is waiting."""
        tip_ms = self.state.tip_ms if self.reading.tip_ms is None else self.reading.tip_ms
        has_ended = self.has_ended and not self.has_ended_for_now
        return replace(self.state, tip_ms=tip_ms, waiting=self.is_waiting, ended=has_ended)

    @property
    def is_open(self) -> bool:
        """Whether the shard may still emit records: it is being read, or has records queued."""
        return self.reading.has_started and not self.has_ended

    @property
    def needs_reader(self) -> bool:
        """Whether this run must read the shard now: it has started, and was neither finished nor abandoned."""
        return self.is_reading and not self.reading.needs_no_more

    @property
    def is_active(self) -> bool:
        """Whether watermarks wait for the shard.

        - They wait while the shard is open, with two exceptions: a straggler (so far behind that it is excluded), and an idle shard whose
          records are all written.
        - They wait after the shard's end until its children have readers, even if the shard is a straggler. Nothing is known of the
          children's records before that.
        """
        if self.status.awaits_children:
            return True
        is_counted = self.is_open and not self.status.is_straggler
        return is_active(is_counted, self.reading.is_idle, self.has_unwritten)

    @property
    def has_unwritten(self) -> bool:
        """Whether records are queued, or were taken from the queue to be written and are not written yet."""
        return self.reading.queue.records > 0 or self.emission.is_writing

    @property
    def has_unwritten_records(self) -> bool:
        """Whether the shard has unwritten records, or records that become dead letters."""
        return self.has_unwritten or bool(self.reading.queue.dead_letters)

    @property
    def oldest_unwritten_ms(self) -> int | None:
        """When the oldest record arrived that was read and is not written yet (epoch ms); None if there is no such record."""
        being_written = self.emission.writing_arrival_ms
        return self.reading.queue.oldest_ms if being_written is None else being_written

    @property
    def next_watermark(self) -> int | None:
        """The watermark of the next record to emit. None if the queue is empty, or if its first batch has no records."""
        return self.reading.queue.next_watermark

    @property
    def alignment_watermark(self) -> int | None:
        """The watermark of the shard's first unwritten record, or else of its last record. It counts for the global watermark."""
        first_unwritten = self.emission.writing_from if self.emission.is_writing else self.next_watermark
        return shard_watermark(first_unwritten, self.state.watermark)

    # ----------------------------------------------------------------------------------------------------------------------------

    def _on_progress(self) -> None:
        """Notify the listener that more was read or emitted.

        The shard ends if it was read to its end, and nothing is queued or being written.
        """
        ends = self.stage is ShardStage.DRAINING and not self.reading.queue and not self.emission.is_writing
        if ends and self.shard.may_grow and not self.reading.children:
            self.has_ended_for_now = True
            self.emission.end_for_now()
        elif ends:
            self.emission.end(self.progress.open_ms)
        self._listener.on_changed(self)
        if ends:
            self._listener.on_ended(self)

    def _check(self, is_in_order: bool, what: str) -> None:
        if not is_in_order:
            raise ImpossibleStateError(
                f"internal error: shard {self.key} {what} although it is {self.stage.name}. Please report it"
            )


# ShardEmission keeps how far one shard was emitted.


class ShardEmission:
    """Keeps how far a shard was emitted, and counts emitted records. Late ones are counted in `metrics`.

    `taken_over_below` is the global watermark at the time when this process acquired the shard from another one (epoch ms). Records that
    are read again may be below it.
    """

    def __init__(self, state: ShardState, taken_over_below: int | None, metrics: ShardMetrics) -> None:
        self.state = state
        self._taken_over_below = taken_over_below
        self._metrics = metrics
        self.is_writing = False
        self.writing_from: int | None = None
        """The watermark of the first record that was taken from the queue and is not written yet (epoch ms)."""
        self.writing_arrival_ms: int | None = None
        """The arrival (epoch ms) of the first record that was taken from the queue and is not written yet; None if there is none."""
        self.records = self.payload_bytes = 0
        self.last_emit_ms: int | None = None

    def start_at(self, watermark: int | None) -> None:
        """Set the watermark with which a shard begins: the lowest one of its parents. A shard that has a watermark keeps it."""
        if self.state.watermark is None and watermark is not None:
            self.state = replace(self.state, watermark=watermark)

    def start_after_parents(self, seen_ms: int | None) -> None:
        """Set the time until which the shard's parents were last known to be open (epoch ms): no record of the shard is older."""
        self.state = replace(self.state, seen_ms=seen_ms)

    def begin_write(self, first_watermark: int | None, arrival_ms: int | None) -> None:
        """Note that the emitter writes records now. If their write does not finish in this run, a later run reads them again.

        - `first_watermark`: the watermark of the first of these records (epoch ms).
        - `arrival_ms`: when the first record arrived (epoch ms).
        """
        self.is_writing, self.writing_from, self.writing_arrival_ms = True, first_watermark, arrival_ms

    def reset(self) -> None:
        """Note that no write is in progress, because the run is over."""
        self.is_writing, self.writing_arrival_ms = False, None

    def advance(self, batch: RecordBatch, global_watermark: int | None, now_ms: int) -> None:
        """Move the position past a batch that was written, and count its records.

        `global_watermark`: the global watermark from before the write.
        """
        self.reset()
        if late := count_late_after_idle(batch, self.state.watermark, global_watermark):
            self._count_late(late)
        self.state = _state_after(self.state, batch)
        if len(batch):
            self.records += len(batch)
            self.payload_bytes += batch.raw_bytes
            self.last_emit_ms = now_ms

    def end(self, open_ms: int | None = None) -> None:
        """Mark the shard as ended, because its last record was emitted.

        `open_ms`: the time until which reads have shown that the shard was open (epoch ms).
        """
        seen_ms = latest(self.state.seen_ms, self.state.arrival_ms, open_ms)
        self.state = replace(self.state, ended=True, continuation=None, seen_ms=seen_ms)

    def end_for_now(self) -> None:
        """Mark the shard as ended for this run. The rest of its state stays, because a later run continues with it."""
        self.state = replace(self.state, ended=True)

    def reopen(self) -> None:
        """Mark the shard as not ended, because the run is over for which it has ended."""
        self.state = replace(self.state, ended=False)

    def _count_late(self, records: int) -> None:
        watermark, limit = self.state.watermark, self._taken_over_below
        if limit is not None and (watermark is None or watermark < limit):
            self._metrics.add("late_after_takeover", records)
        else:
            self._metrics.add("late_after_idle", records)


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
        seen_ms=None,
    )


def count_late_after_idle(batch: RecordBatch, shard_watermark: int | None, global_watermark: int | None) -> int:
    """Return how many records of a batch are below the global watermark, although they are not late in their shard.

    Such records exist only in a shard that was idle or excluded, or whose first watermark was too low. The global watermark never passes
    the next record of any other shard.

    Both watermarks must be from before the write. After the write, the global watermark already considers the shard's next record.
    """
    if global_watermark is None or (shard_watermark is not None and shard_watermark >= global_watermark):
        return 0
    own, count = shard_watermark, 0
    for time, next_own in zip(batch.event_time_column, batch.watermarks or (), strict=True):
        if time < global_watermark and (own is None or time >= own):
            count += 1
        own = next_own
        if own >= global_watermark:
            break
    return count
