"""Writes batches to the sink and advances the position in one step (S1), and passes the watermark on to the sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.user_code import add_note, exc_info_for_log, log_user_error, was_logged

from ..settings import FetcherSettings
from ..shards.shard_entry import ShardEntry
from ..sink import RecordsCall, Sink, Traced, always_may_write, untraced
from ..watermarks import Alignment, LocalWatermark
from .bounded_runs import Bounds, EndReason, TerminationCondition
from .checked_sink_calls import check_unchanged, has_room, naming_sink, naming_writes
from .process_suspension import SuspensionDetector
from .reading import ReadIntake
from .sink_turn import SinkTurn

log = logging.getLogger("recordpublisher.fetcher")
MIN_TURN_SECONDS, MAX_TURN_SECONDS = 0.005, 0.05
"""The shortest and the longest time for which the emitter runs before it lets the readers run (seconds). Within these limits it runs for
as long as the readers did.
"""
PERMISSION_POLL_SECONDS = 0.1


class Emitter:
    """Emits records: gives batches to the sink, one at a time, and moves the position of a shard when `write` returns.

    Only the emitter and checkpoints call the sink. They take turns, so that calls never overlap. The emitter is stopped and never
    cancelled, so that each write ends.

    `may_write_now` is called before each write. In a group it returns False while other workers may have replaced this one.
    """

    def __init__(
        self,
        sink: Sink,
        alignment: Alignment,
        intake: ReadIntake,
        clock: Clock,
        suspension: SuspensionDetector,
        settings: FetcherSettings,
        handle_undeserialized: Callable[[RecordBatch], Awaitable[None]],
        may_write_now: Callable[[], bool] = always_may_write,
        traced: Traced = untraced,
    ) -> None:
        self._sink = sink
        write: RecordsCall = lambda batch: sink.write(batch)  # noqa: E731, PLW0108 - a sink may set its `write` when it is opened
        self._write_to_sink = traced(write) if sink.traces_writes else write
        self._write_call = naming_writes(sink)
        self._alignment = alignment
        self._intake = intake
        self._clock = clock
        self._suspension = suspension
        self._emit_interval = settings.emit_interval_ms / 1000
        self._handle_undeserialized = handle_undeserialized
        self._may_write_now = may_write_now
        self._run = TerminationCondition(Bounds())
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._have_all_ended = False
        self._last_watermark_at = float("-inf")
        self._turn_began = clock.monotonic()
        self._turn_seconds = MIN_TURN_SECONDS
        self.turn = SinkTurn()
        """The lock that is held during every call of the sink."""
        self.local_watermark = LocalWatermark()
        self.records = 0
        self._writing: ShardEntry | None = None
        self.records_in_write = 0
        """Records in the call of the sink's `write` that is in progress."""
        self.write_delays = Histogram()
        """Time from the arrival of records in the stream until they were written to the sink (ms)."""

    @property
    def has_lost_batch(self) -> bool:
        """Whether another process has acquired the shard whose batch is being written. That process writes the same records."""
        return self._writing is not None and self._writing.is_removed

    # --- a run ------------------------------------------------------------------------------------------------------------------

    def start(self, run: TerminationCondition) -> None:
        """Start a run. `run` has its bounds."""
        self._run = run
        self._is_stopping = self._have_all_ended = False

    async def run(self, on_bounds_reached: Callable[[EndReason], None]) -> None:
        """Emit until stopped.

        `on_bounds_reached`: called with the reason when the run has reached its bounds.
        """
        while not self._is_stopping:
            if (reason := self._run.end_reason()) is not None:
                if self._run.finish():
                    for entry in self._alignment.entries():
                        self.on_changed(entry)
                on_bounds_reached(reason)
                break
            selected = self._select_next()
            if selected is not None:
                if await self._emit(*selected):
                    await self._emit_watermark()
                    await self._yield_to_readers()
                continue
            self._wake.clear()
            await self._emit_watermark()
            if self._select_next() is None:
                await self._wake.wait()
                # After a suspension of the process it must be decided again which shards are idle, before anything is emitted (W7).
                self._suspension.check()
                self._turn_began = self._clock.monotonic()
        self._last_watermark_at = float("-inf")
        await self._emit_watermark()

    def stop(self) -> None:
        """Make `run` return after the current write."""
        self._is_stopping = True
        self._wake.set()

    def on_all_ended(self) -> None:
        """Let the last watermark of the run be the highest one of the shards.

        No record follows, because each shard was read to its end, or every stream was deleted.
        """
        self._have_all_ended = True

    def end_run(self) -> None:
        """Forget the bounds of the run that is over."""
        self._run = TerminationCondition(Bounds())

    # --- shards -----------------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check again which shard may emit, because something has changed."""
        self._wake.set()

    def on_added(self, entry: ShardEntry) -> None:
        """Let watermarks wait for a new shard.

        The bounds of the run are not updated: a shard that had ended before the run does not count as finished by the run.
        """
        self._alignment.update(entry)
        self.local_watermark.update(entry)

    def on_changed(self, entry: ShardEntry) -> None:
        """Update a shard whose queue, stage or idleness changed."""
        self._run.update(entry)
        holds_watermark = self._run.holds_watermark(entry)
        self._alignment.update(entry, self._run.may_emit(entry), holds_watermark)
        self.local_watermark.update(entry, holds_watermark)
        self._wake.set()

    def on_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Count an emitted batch towards the bounds of the run, and end the shard's turn. Call `on_changed` after this."""
        self._run.count_emitted(entry, batch)
        self._alignment.on_emitted(entry)

    def on_removed(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._run.remove(key)
        self._alignment.remove(key)
        self.local_watermark.remove(key)
        self._wake.set()

    def on_heartbeat(self) -> None:
        """Update the global watermark, even while no record is emitted, and let the emitter pass it to the sink."""
        self._alignment.report()
        self._wake.set()

    # --- the sink ---------------------------------------------------------------------------------------------------------------

    def between_writes(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager whose block is the only user of the sink. Checkpoints flush the sink in such a block.

        Raises: the error of an earlier call of the sink, because the sink may have lost records with that call.
        """
        return self.turn.between_writes()

    async def wait_for_write(self) -> None:
        """Wait until the write in progress has ended and the position has moved past it."""
        async with self.turn.lock:
            pass

    def _select_next(self) -> tuple[ShardEntry, int] | None:
        """Return the shard that emits next, and how many records of its first queued batch. Alignment and the bounds of the run decide.

        Return None if no shard may emit, or if the sink has no room.
        """
        selected = self._alignment.select_next() if has_room(self._sink) else None
        if selected is None:
            return None
        entry, count = selected
        return entry, self._run.max_emittable(entry, count)

    async def _emit(self, entry: ShardEntry, count: int) -> bool:
        """Write the next `count` records of a shard's first queued batch. Return whether the shard's position has moved.

        There are three cases:

        1. The batch has no records: only the position moves.
        2. The batch was written: the position moves in the same step, before another task can call the sink.
        3. The shard was removed while the batch waited or was written: the position does not move, and the batch's memory is freed.
        """
        batch, freed = entry.take(count)
        try:
            if batch.after_gap:
                with naming_sink(self._sink, "shard_started"):
                    self._sink.shard_started(entry.shard, StartingPosition.trim_horizon(), follows_parents=False)
            if len(batch) or batch.poisoned:
                async with self.turn.lock:
                    return await self._may_write(entry) and await self._write(entry, batch)
            entry.advance(batch, None, self._clock.now_ms())
            return True
        finally:
            # The memory is free after an error too, because another run of this fetcher may follow.
            self._intake.on_emitted(entry, freed)

    async def _may_write(self, entry: ShardEntry, *, was_begun: bool = False) -> bool:
        """Wait until this process may write. Return False if the run stops, or if this process no longer reads the shard.

        `was_begun`: whether the write has begun before. The wait then ends only when the shard is removed from the table.
        """
        while not entry.is_removed and (was_begun or not entry.reading.is_abandoned):
            if self._may_write_now():
                return True
            if self._is_stopping:
                return False
            await asyncio.sleep(PERMISSION_POLL_SECONDS)
        return False

    async def _write(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        global_watermark, trusted = self._alignment.global_watermark, self.turn.times_trusted
        self._writing = entry
        try:
            is_written = await self._write_to_sinks(entry, batch)
        except Exception as error:
            # If this worker was replaced, its error does not matter: other workers read the records again, and may have deleted what
            # the sink writes to. So the error is raised only when a heartbeat proves that the worker was not replaced, or when the
            # run ends: then the last checkpoint must not store positions of records that the sink has lost.
            if await self._may_write(entry, was_begun=True) or not entry.is_removed:
                self.turn.fail(error)  # even with StoreUnavailableError, because no write is repeated
                raise
            lost = (
                "the sink failed at %s of %s. This process may have lost its shards, so the error does not end the "
                "job, and the records are read again: %s"
            )
            log.warning(lost, counted(len(batch), "record"), entry.key, error)
            # If only this shard was lost, the sink may have lost rows of shards that this process still has. So the next checkpoint raises
            # the error.
            self.turn.fail_since(trusted, error)
            is_written = False
        finally:
            self._writing, self.records_in_write = None, 0
        if is_written:
            self.records += len(batch)
        if not is_written or entry.is_removed:
            return False
        now_ms = self._clock.now_ms()
        entry.advance(batch, global_watermark, now_ms)
        if len(batch) and entry.state.arrival_ms is not None:
            # The last record stands for the batch: to count each record would cost as much again as to write it to a fast sink.
            self.write_delays.add_many(now_ms - entry.state.arrival_ms, len(batch))
        return True

    async def _write_to_sinks(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        if batch.poisoned:
            await self._handle_undeserialized(batch)
            # Writing the dead letters may have taken long, so the permission is checked again. This write has begun, so the shard is
            # not transferred before the write has ended.
            if len(batch) and not await self._may_write(entry, was_begun=True):
                return False
        if len(batch):
            self.records_in_write = len(batch)
            with self._write_call.with_subject(entry.key):
                try:
                    count = len(batch)
                    await self._write_to_sink(batch)
                    check_unchanged(self._sink, batch, count)
                except Exception as error:
                    tell_user_error(error, self._sink, batch)
                    raise
        return True

    async def _yield_to_readers(self) -> None:
        """Let the readers run, even if the sink never waits.

        The emitter's next turn is as long as this turn of the readers. If it were shorter, many readers would fill the queues faster than
        the emitter empties them.
        """
        yielded_at = self._clock.monotonic()
        if yielded_at - self._turn_began < self._turn_seconds:
            return
        await asyncio.sleep(0)
        self._turn_began = self._clock.monotonic()
        self._turn_seconds = min(max(self._turn_began - yielded_at, MIN_TURN_SECONDS), MAX_TURN_SECONDS)

    async def _emit_watermark(self) -> None:
        if self._clock.monotonic() - self._last_watermark_at < self._emit_interval:
            return
        self._last_watermark_at = self._clock.monotonic()
        # Computed while no other call of the sink runs: during a flush a shard may become active again, and lower the watermark (W1).
        async with self.turn.lock:
            has_ended = self._have_all_ended
            known = self._alignment.report_end() if has_ended else self._alignment.report()
            value = self.local_watermark.advance(known, has_ended=has_ended)
            if value is not None:
                with self.turn.noting_errors(), naming_sink(self._sink, "watermark"):
                    await self._sink.watermark(value)
            elif self.local_watermark.take_idle_transition():
                with self.turn.noting_errors(), naming_sink(self._sink, "idle"):
                    await self._sink.idle()


def tell_user_error(error: Exception, sink: Sink, batch: RecordBatch) -> None:
    """Log an error of a sink that is user code, with its traceback and the record at which it was raised.

    Errors of built-in sinks are not logged here. `MapSink` has already logged the error of its handler.
    """
    if exc_info_for_log(error) is not None and not was_logged(error):
        first = batch.sequence_numbers[0]
        where = f"the sink {type(sink).__name__} failed in `write` at a batch of {batch.shard.key} that begins at record {first}"
        add_note(error, where)
        log_user_error(log, error, where, batch.shard.key, first)
