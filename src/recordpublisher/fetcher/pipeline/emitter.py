"""Writes batches to the sink and advances the position in one step (S1), and passes the watermark on to the sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import add_note, for_log, log_user_error, was_logged

from ..settings import FetcherSettings
from ..shards.shard_entry import ShardEntry
from ..sink import RecordsCall, Sink, Traced, always_may_write, untraced
from ..watermarks import Alignment, LocalWatermark
from .bounded_runs import Bounds, EndReason, TerminationCondition
from .process_suspension import SuspensionDetector
from .reading import ReadIntake
from .sink_errors import naming_sink, naming_write

log = logging.getLogger("recordpublisher.fetcher")
MIN_TURN_SECONDS, MAX_TURN_SECONDS = 0.005, 0.05
"""How long the emitter runs before it yields to the readers if the sink never waits: as long as their last turn, within these limits."""
PERMISSION_POLL_SECONDS = 0.1


class Emitter:
    """The only caller of the sink, apart from checkpoints. Both take turns, so that calls never overlap.

    It is stopped and never cancelled, so that a write is never cut off.

    `may_write_now` is asked before each write, because a worker that others may replace needs a permission (E4).
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
        self._last_watermark_at = float("-inf")
        self._turn_began = clock.monotonic()
        self._turn_seconds = MIN_TURN_SECONDS
        self._sink_turn = _SinkTurn()
        """Held around every call of the sink."""
        self.local_watermark = LocalWatermark()
        self.records = 0
        self.records_in_write = 0
        """Records in the call of the sink's `write` that is in progress."""

    # --- a run ------------------------------------------------------------------------------------------------------------------

    def start(self, run: TerminationCondition) -> None:
        """Start a run, with its bounds."""
        self._run = run
        self._is_stopping = False

    async def run(self, on_bounds_reached: Callable[[EndReason], None]) -> None:
        """Emit until stopped. Call `on_bounds_reached` when the run has reached its bounds."""
        while not self._is_stopping:
            if (reason := self._run.end_reason()) is not None:
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
                self._suspension.check()  # idleness must be judged again after a suspension, before anything is emitted (W7)
                self._turn_began = self._clock.monotonic()
        self._last_watermark_at = float("-inf")
        await self._emit_watermark()

    def stop(self) -> None:
        """Return from `run` after the current write."""
        self._is_stopping = True
        self._wake.set()

    def end_run(self) -> None:
        """Forget the bounds of the run that is over."""
        self._run = TerminationCondition(Bounds())

    # --- shards -----------------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check again what may be emitted, because something changed."""
        self._wake.set()

    def on_added(self, entry: ShardEntry) -> None:
        """Count an added shard for watermarks from now on.

        It does not count for the run, because a shard that had ended before was not finished by this run.
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
        """Count an emitted batch towards the bounds of the run, and towards the turn of its shard. The caller calls `on_changed` next."""
        self._run.count_emitted(entry, batch)
        self._alignment.on_emitted(entry)

    def on_removed(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._run.remove(key)
        self._alignment.remove(key)
        self.local_watermark.remove(key)
        self._wake.set()

    def on_heartbeat(self) -> None:
        """Refresh the global watermark, even while idle or held back (W7), and let the emitter pass it to the sink."""
        self._alignment.report()
        self._wake.set()

    # --- the sink ---------------------------------------------------------------------------------------------------------------

    def between_writes(self) -> AbstractAsyncContextManager[None]:
        """Let no other call of the sink be in progress or begin during the block, which may call it. Checkpoints use this."""
        return self._sink_turn

    @property
    def has_sink_failed(self) -> bool:
        """Whether a call of the sink has raised: the sink may have lost what it had not made durable."""
        return self._sink_turn.has_failed

    async def wait_for_write(self) -> None:
        """Wait until the write in progress has ended, and its position is counted."""
        async with self._sink_turn:
            pass

    def _select_next(self) -> tuple[ShardEntry, int] | None:
        """Return the shard that emits next, and how many records of its first batch.

        Alignment and the bounds choose it. Return None if there is no such shard, or the sink has no room.
        """
        selected = self._alignment.select_next() if self._sink.has_room() else None
        if selected is None:
            return None
        entry, count = selected
        return entry, self._run.max_emittable(entry, count)

    async def _emit(self, entry: ShardEntry, count: int) -> bool:
        """Write the next `count` records of a shard's first batch. Return whether the shard's position has moved. There are three cases:

        1. The batch has no records: only the position moves.
        2. The batch was written: the position moves in the same step (S1), still under the lock.
        3. The shard was removed while the batch waited or was written: the batch only frees its memory (P6).
        """
        batch, freed = entry.take(count)
        if batch.after_gap:
            self._sink.shard_started(entry.shard, StartingPosition.trim_horizon(), follows_parents=False)
        if len(batch) or batch.poisoned:
            async with self._sink_turn:
                is_emitted = await self._may_write(entry) and await self._write(entry, batch)
        else:
            is_emitted = True
            entry.advance(batch, None, self._clock.now_ms())
        self._intake.on_emitted(entry, freed)
        return is_emitted

    async def _may_write(self, entry: ShardEntry, *, was_begun: bool = False) -> bool:
        """Wait for the permission to write (E4). Return False if the run stops, or the shard is no longer read here.

        If `was_begun`, a shard that is abandoned after the write began still waits for the permission.
        """
        while not entry.is_removed and (was_begun or not entry.reading.is_abandoned):
            if self._may_write_now():
                return True
            if self._is_stopping:
                return False
            await asyncio.sleep(PERMISSION_POLL_SECONDS)
        return False

    async def _write(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        global_watermark = self._alignment.global_watermark
        try:
            is_written = await self._write_to_sinks(entry, batch)
        except Exception as error:
            # If this worker was replaced, others may have deleted the target of its writes, and they read its records again. Until
            # that is known, the error waits. It counts once a heartbeat is confirmed, or if the run ends before. Otherwise the last
            # checkpoint would store positions of records that the sink has lost with the error.
            if await self._may_write(entry, was_begun=True) or not entry.is_removed:
                self._sink_turn.fail()  # even with StoreUnavailableError, because no write is repeated
                raise
            lost = "the sink failed at %s of %s, which are read again, because the lease of this process is no longer confirmed: %s"
            log.warning(lost, counted(len(batch), "record"), entry.key, error)
            is_written = False
        finally:
            self.records_in_write = 0
        if is_written:
            self.records += len(batch)
        if not is_written or entry.is_removed:
            return False
        entry.advance(batch, global_watermark, self._clock.now_ms())
        return True

    async def _write_to_sinks(self, entry: ShardEntry, batch: RecordBatch) -> bool:
        if batch.poisoned:
            await self._handle_undeserialized(batch)
            # The target of dead letters may be slow, so the permission may be gone by now. A hand-over waits for a write that has
            # begun.
            if len(batch) and not await self._may_write(entry, was_begun=True):
                return False
        if len(batch):
            self.records_in_write = len(batch)
            with naming_write(self._sink, batch):
                try:
                    await self._write_to_sink(batch)
                except Exception as error:
                    tell_user_error(error, batch)
                    raise
        return True

    async def _yield_to_readers(self) -> None:
        """Let the readers run, even if the sink never waits (F1).

        The emitter's next turn is as long as the readers' turn was. With a shorter one, many readers would fill the queues.
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
        # Decided while holding the lock, because a shard may become active again during a flush. An earlier value would be too high
        # (W1).
        async with self._sink_turn:
            value = self.local_watermark.advance(self._alignment.report())
            if value is not None:
                with naming_sink(self._sink, "watermark"):
                    await self._sink.watermark(value)
            elif self.local_watermark.take_idle_transition():
                with naming_sink(self._sink, "idle"):
                    await self._sink.idle()


class _SinkTurn(asyncio.Lock):
    """A lock that remembers whether its block has raised. A context manager around a lock would take four times as long for each batch."""

    has_failed = False

    def fail(self) -> None:
        """Remember a failure that its block did not raise, or that counts although its kind does not."""
        self.has_failed = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # With StoreUnavailableError a checkpoint has lost nothing, and is repeated.
        if isinstance(error, Exception) and not isinstance(error, StoreUnavailableError):
            self.has_failed = True
        self.release()


def tell_user_error(error: Exception, batch: RecordBatch) -> None:
    """Log an error of a sink that is user code, with its traceback and the record at which it was raised.

    Errors of our own sinks need no such line, and MapSink has already logged the error of a handler.
    """
    if for_log(error) is not None and not was_logged(error):
        first = batch.sequence_numbers[0]
        where = f"the sink failed at a batch of {batch.shard.key} that begins at record {first}"
        add_note(error, where)
        log_user_error(log, error, where, batch.shard.key, first)
