"""Emitter: writes batches to the sink and advances the position in one step (S1); passes the watermark on to the sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import add_note, for_log, log_user_error, was_logged

from ..settings import FetcherSettings
from ..shards.shard_entry import ShardEntry
from ..sink import RecordsCall, Sink, Traced, always, untraced
from ..watermarks.alignment import Alignment
from ..watermarks.local_watermark import LocalWatermark
from .bounds import Bounds, EndReason
from .read_intake import ReadIntake
from .suspension import SuspensionDetector
from .termination import TerminationCondition

log = logging.getLogger("recordpublisher.fetcher")
MIN_TURN_SECONDS, MAX_TURN_SECONDS = 0.005, 0.05
"""How long the emitter runs before it yields to the readers if the sink never waits: as long as their last turn, within these limits."""
PERMISSION_POLL_SECONDS = 0.1


class Emitter:
    """The only caller of the sink, apart from checkpoints, which take turns with it: calls never overlap.

    It is stopped and never cancelled, so that a write is never cut off.
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
        may_write_now: Callable[[], bool] = always,
        traced: Traced = untraced,
    ) -> None:
        """`may_write_now` is asked before each write: a worker that others may replace needs a permission (E4)."""
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
        self._sink_lock = asyncio.Lock()
        """Held around every call of the sink."""
        self.local_watermark = LocalWatermark()
        self.records = 0
        self.records_in_write = 0
        """In the call of the sink's `write` that is going on."""

    # --- a run ------------------------------------------------------------------------------------------------------------------

    def start(self, run: TerminationCondition) -> None:
        """A run starts, with its bounds."""
        self._run = run
        self._is_stopping = False

    async def run(self, on_bounds_reached: Callable[[EndReason], None]) -> None:
        """Emit until stopped. Calls `on_bounds_reached` when the run has reached its bounds."""
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
                self._suspension.check()  # after a suspension idleness is judged again before anything is emitted (W7)
                self._turn_began = self._clock.monotonic()
        self._last_watermark_at = float("-inf")
        await self._emit_watermark()

    def stop(self) -> None:
        """Return from `run` after the current write."""
        self._is_stopping = True
        self._wake.set()

    def end_run(self) -> None:
        """The run is over: its bounds do not count any more."""
        self._run = TerminationCondition(Bounds())

    # --- shards -----------------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something changed: check again what may be emitted."""
        self._wake.set()

    def on_added(self, entry: ShardEntry) -> None:
        """A shard was added: watermarks count it from now on. The run does not: one that had ended before is not done by this run."""
        self._alignment.update(entry)
        self.local_watermark.update(entry)

    def on_changed(self, entry: ShardEntry) -> None:
        """A shard's queue, stage or idleness changed."""
        self._run.update(entry)
        holds_watermark = self._run.holds_watermark(entry)
        self._alignment.update(entry, self._run.may_emit(entry), holds_watermark)
        self.local_watermark.update(entry, holds_watermark)
        self._wake.set()

    def on_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """A batch counts for the bounds of the run, and where shards take turns the next one's has come. `on_changed` follows."""
        self._run.count_emitted(entry, batch)
        self._alignment.on_emitted(entry)

    def on_removed(self, key: str) -> None:
        """A shard was removed."""
        self._run.remove(key)
        self._alignment.remove(key)
        self.local_watermark.remove(key)
        self._wake.set()

    def on_heartbeat(self) -> None:
        """Refresh the global watermark, also while idle or held back (W7), and emit to the sink what is due."""
        self._alignment.report()
        self._wake.set()

    # --- the sink ---------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """While this lasts no call of the sink is going on, and none begins: for checkpoints."""
        async with self._sink_lock:
            yield

    async def wait_for_write(self) -> None:
        """Wait until the write that is going on has ended, and its position is counted."""
        async with self._sink_lock:
            pass

    def _select_next(self) -> tuple[ShardEntry, int] | None:
        """The shard that emits next, and how many records of its first batch: as alignment and the bounds allow, if the sink has room."""
        selected = self._alignment.select_next() if self._sink.has_room() else None
        if selected is None:
            return None
        entry, count = selected
        return entry, self._run.max_emittable(entry, count)

    async def _emit(self, entry: ShardEntry, count: int) -> bool:
        """Write the next `count` records of a shard's first batch. Returns whether its position has moved. There are three cases:

        1. The batch has no records: only the position moves.
        2. It was written: the position moves in the same step (S1), still under the lock.
        3. The shard went away while the batch waited or was written: it only gives its memory back (P6).
        """
        batch, freed = entry.take(count)
        if len(batch) or batch.poisoned:
            async with self._sink_lock:
                is_emitted = await self._may_write(entry) and await self._write(entry, batch)
        else:
            is_emitted = True
            entry.advance(batch, None, self._clock.now_ms())
        self._intake.on_emitted(entry, freed)
        return is_emitted

    async def _may_write(self, entry: ShardEntry, *, was_begun: bool = False) -> bool:
        """Wait for the permission, as long as the shard is read here, or was when the write began, and the run goes on (E4)."""
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
            # Of a worker that was replaced others may have deleted what it wrote to, and they read its records again. While that is not
            # known the error waits: it counts once a heartbeat is confirmed, or if the run ends before. The last checkpoint would otherwise
            # store positions of records that the sink has lost with the error.
            if await self._may_write(entry, was_begun=True) or not entry.is_removed:
                raise
            lost = "the sink failed at %s of %s, which are read again, since the lease of this process is not confirmed any more: %s"
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
            # The target of dead letters may be slow, and the permission gone by now. A hand-over waits for what was begun.
            if len(batch) and not await self._may_write(entry, was_begun=True):
                return False
        if len(batch):
            self.records_in_write = len(batch)
            try:
                await self._write_to_sink(batch)
            except Exception as error:
                tell_user_error(error, batch)
                raise
        return True

    async def _yield_to_readers(self) -> None:
        """Let the readers run, also when the sink never waits (F1).

        The emitter's next turn is as long as theirs was: with a shorter one, many readers would fill the queues.
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
        # Decided while holding the lock: during a flush a shard may become active again, and a value from before would be too high (W1).
        async with self._sink_lock:
            value = self.local_watermark.advance(self._alignment.report_and_get())
            if value is not None:
                await self._sink.watermark(value)
            elif self.local_watermark.take_idle_transition():
                await self._sink.idle()


def tell_user_error(error: Exception, batch: RecordBatch) -> None:
    """An error of a sink that is user code comes with its traceback, and says at which record; those of our sinks say all themselves, and
    MapSink has told that of a handler."""
    if for_log(error) is not None and not was_logged(error):
        first = batch.sequence_numbers[0]
        where = f"the sink failed at a batch of {batch.shard.key} that begins at record {first}"
        add_note(error, where)
        log_user_error(log, error, where, batch.shard.key, first)
