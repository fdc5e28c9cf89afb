"""Emitter writes batches to the sink and advances the position in one step (S1), and passes the watermark on to the sink."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError, StoreUnavailableError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import LEFT_BEHIND, add_note, for_log, log_user_error, was_logged

from ..settings import FetcherSettings
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_reading import ShardState
from ..sink import RecordsCall, Sink, Traced, always, untraced
from ..watermarks import Alignment, LocalWatermark
from .dead_letters import has_room, naming_sink, naming_writes
from .process_suspension import SuspensionDetector
from .reading import ReadIntake
from .retention_gaps import ShardObservation

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
        may_write_now: Callable[[], bool] = always,
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
        selected = self._alignment.select_next() if has_room(self._sink) else None
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
            with self._write_call.about(entry.key):
                try:
                    await self._write_to_sink(batch)
                except Exception as error:
                    tell_user_error(error, self._sink, batch)
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


def tell_user_error(error: Exception, sink: Sink, batch: RecordBatch) -> None:
    """Log an error of a sink that is user code, with its traceback and the record at which it was raised.

    Errors of our own sinks need no such line, and MapSink has already logged the error of a handler.
    """
    if for_log(error) is not None and not was_logged(error):
        first = batch.sequence_numbers[0]
        where = f"the sink {type(sink).__name__} failed in `write` at a batch of {batch.shard.key} that begins at record {first}"
        add_note(error, where)
        log_user_error(log, error, where, batch.shard.key, first)


# TerminationCondition decides whether a bounded run has reached its bounds (S8). RunCompletion: the end of a run,
# with its reason.


class TerminationCondition:
    """Owns how much a run has emitted, and which of its shards have reached their bounds.

    `has_leases`: whether shards come with leases. Then a run has no shards at first, and children follow their parent only later
    (E7).
    """

    def __init__(self, bounds: Bounds, *, has_leases: bool = False) -> None:
        self._bounds = bounds
        self._has_leases = has_leases
        self._started: set[str] = set()
        self._done: set[str] = set()
        self._per_shard: dict[str, int] = {}
        self.until_event_time = bounds.until_event_time
        self.max_time = bounds.max_time
        self.records = 0
        self.payload_bytes = 0
        self.has_shard_bounds = bounds.stop_at_tip or bounds.until_event_time is not None or bool(bounds.shard_limits)

    def max_emittable(self, entry: ShardEntry, count: int) -> int:
        """Return how many of a shard's next `count` records may be emitted within the bounds."""
        total = self._bounds.max_records
        if total is not None:
            count = min(count, total - self.records)
        if self._bounds.max_bytes is not None:
            count = min(count, self._fair_share(entry, self._bounds.max_bytes))
        limit = self._bounds.shard_limits.get(entry.key)
        return count if limit is None else min(count, limit - self._per_shard.get(entry.key, 0))

    def may_emit(self, entry: ShardEntry) -> bool:
        """Return whether the shard is below its own limit of records."""
        limit = self._bounds.shard_limits.get(entry.key)
        return limit is None or self._per_shard.get(entry.key, 0) < limit

    def needs_more_reads(self, entry: ShardEntry) -> bool:
        """Return whether the run may emit more of a shard than was read so far.

        Reading stops at the first tip. A busy shard has new records by the time the last of a thousand shards reaches
        its tip, so the shards would never all be at their tips together.
        """
        return self.may_emit(entry) and not self._has_reached_tip(entry) and not self.is_past_event_time(entry)

    def count_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Count an emitted batch."""
        self.records += len(batch)
        self.payload_bytes += batch.raw_bytes
        self._per_shard[entry.key] = self._per_shard.get(entry.key, 0) + len(batch)

    def update(self, entry: ShardEntry) -> None:
        """Check again whether a shard has reached its bounds."""
        if entry.stage is ShardStage.WAITING:
            return
        self._started.add(entry.key)
        if self._is_done(entry):
            self._done.add(entry.key)
        else:
            self._done.discard(entry.key)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._started.discard(key)
        self._done.discard(key)

    def holds_watermark(self, entry: ShardEntry) -> bool:
        """Return whether watermarks wait for the shard.

        A bounded run does not wait for records that it will not read. W2 is for unbounded runs.
        """
        return not self.has_shard_bounds or entry.key not in self._done or self.is_past_event_time(entry)

    def end_reason(self) -> EndReason | None:
        """Return why the run is over, or None while it is not."""
        bounds = self._bounds
        if bounds.max_records is not None and self.records >= bounds.max_records:
            return EndReason.MAX_RECORDS
        if bounds.max_bytes is not None and self.payload_bytes >= bounds.max_bytes:
            return EndReason.MAX_BYTES
        if self.has_shard_bounds and self._started and len(self._done) == len(self._started):
            return self._shard_reason()
        return None

    @property
    def ends_without_open_shards(self) -> bool:
        """Whether the run is over when this worker has no open shard."""
        return self.has_shard_bounds and not self._has_leases

    def is_past_event_time(self, entry: ShardEntry) -> bool:
        """Return whether a shard's next record is above the event-time bound."""
        until, watermark = self._bounds.until_event_time, entry.next_watermark
        return until is not None and watermark is not None and watermark > until

    def _fair_share(self, entry: ShardEntry, max_bytes: int) -> int:
        """Return how many records a shard may emit at once, so that every shard can emit before `max_bytes` is reached.

        One read of a busy shard may be larger than the whole bound. Without this, that shard would be the only one in
        every run.
        """
        head = entry.reading.queue[0]
        return max(1, max_bytes * len(head) // (max(1, len(self._started)) * max(1, head.raw_bytes)))

    def _is_done(self, entry: ShardEntry) -> bool:
        if entry.stage is ShardStage.ENDED:
            return not (self._has_leases and entry.reading.children)
        if not self.may_emit(entry) or self.is_past_event_time(entry):
            return True
        return self._has_reached_tip(entry) and not entry.reading.queue and not entry.emission.is_writing

    def _has_reached_tip(self, entry: ShardEntry) -> bool:
        """Return whether the run has seen the shard's tip.

        A shard that was closed when listed has no tip, only an end, because its children wait for the end (S2).
        """
        return self._bounds.stop_at_tip and entry.reading.has_seen_tip and not entry.shard.closed

    def _shard_reason(self) -> EndReason:
        if self._bounds.until_event_time is not None:
            return EndReason.EVENT_TIME
        return EndReason.TIP if self._bounds.stop_at_tip else EndReason.SHARD_LIMITS


class RunCompletion:
    """Owns how a run ends: with a reason or an error, whichever comes first. An error of a background task ends the run."""

    def __init__(self) -> None:
        self._reason: asyncio.Future[EndReason] | None = None
        self._is_stopped = False
        self.ending = asyncio.Event()
        """Set while a run ends, and after it."""

    @property
    def is_running(self) -> bool:
        """Whether a run has started and not ended."""
        return self._reason is not None and not self._reason.done()

    @property
    def has_ended(self) -> bool:
        """Whether the last run has ended."""
        return self._reason is not None and self._reason.done()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the run. None while it runs, and after any other end."""
        if self._reason is None or not self._reason.done() or self._reason.cancelled():
            return None
        return self._reason.exception()

    def start(self) -> None:
        """Start a run. After `stop` it ends at once."""
        self._reason = asyncio.get_running_loop().create_future()
        self.ending.clear()
        if self._is_stopped:
            self.complete(EndReason.STOPPED)

    async def wait(self) -> EndReason:
        """Wait for the end of the run. Raises: the error that ended it."""
        assert self._reason is not None
        return await self._reason

    def complete(self, reason: EndReason) -> None:
        """End the run."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_result(reason)
            self.ending.set()

    def stop(self) -> None:
        """End the run, and each later one as soon as it starts."""
        self._is_stopped = True
        self.complete(EndReason.STOPPED)

    async def complete_after(self, seconds: float | None) -> None:
        """End the run after `seconds`, or never if it is None."""
        if seconds is not None:
            await asyncio.sleep(seconds)
            self.complete(EndReason.MAX_TIME)

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_exception(error)
            self.ending.set()

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a background task of the run."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task in LEFT_BEHIND:  # a task that an earlier run has left behind
            return
        if task.cancelled():
            # At the end of a run we cancel tasks ourselves; then this changes nothing. Before the end, a sink has let a
            # cancellation of its own escape. Then the run must fail instead of waiting for ever.
            self.fail(ImpossibleStateError(f"a background task of the run was cancelled: {task.get_coro()}"))
        elif (error := task.exception()) is not None:
            self.fail(error)


# Bounded runs: the bounds that may end a run, and its result.


class EndReason(Enum):
    """The reason why a run ended."""

    STOPPED = "stop() was called"
    MAX_TIME = "max_time was reached"
    MAX_RECORDS = "max_records was reached"
    MAX_BYTES = "max_bytes was reached"
    EVENT_TIME = "every shard reached until_event_time or its tip"
    TIP = "every shard reached its tip"
    SHARD_LIMITS = "every shard reached its number of records"
    ALL_ENDED = "every shard was read to its end"
    STREAMS_DELETED = "every stream was deleted"


def _check(name: str, given: Any, types: tuple[type, ...], valid: str) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, types) or not 0 <= given < math.inf:  # type: ignore[operator]
        raise ConfigurationError(name, given, valid)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that end a run. Every bound is optional; the first one reached ends the run.

    - `max_time`: seconds.
    - `max_records`: the number of records over all shards, exact.
    - `max_bytes`: payload bytes over all shards. The batch that crosses the bound is the last.
    - `until_event_time`: epoch ms. Records with a watermark above it are not emitted. A shard whose next record is
      above it has finished.
    - `stop_at_tip`: whether a shard is read only until a read is at its tip. Later records are left to the next run.
    - `shard_limits`: exactly this many records of each shard (by `Shard.key`), then the shard has finished. Shards not
      named have no limit. The run asks the mapping after each write, so with `stop_at_tip` its sink may end a shard by
      adding it.
    """

    max_time: float | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    until_event_time: int | None = None
    stop_at_tip: bool = False
    shard_limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds. Raises: ConfigurationError if one is invalid."""
        _check("max_time", self.max_time, (int, float), "a number of seconds, not negative")
        _check("max_records", self.max_records, (int,), "a number of records, not negative")
        _check("max_bytes", self.max_bytes, (int,), "a number of bytes, not negative")
        if not isinstance(self.stop_at_tip, bool):
            raise ConfigurationError("stop_at_tip", self.stop_at_tip, "True or False")
        for key, limit in self.shard_limits.items():
            _check(f"shard_limits[{key}]", limit, (int,), "a number of records, not negative")
        if self.until_event_time is not None and type(self.until_event_time) is not int:
            raise ConfigurationError("until_event_time", self.until_event_time, "epoch milliseconds, a whole number")


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """How far a run emitted a shard.

    - `state`: the shard's emitted state.
    - `records`, `payload_bytes`: how much was emitted in this run.
    - `seen`: the run's other observations of the shard.
    """

    shard: Shard
    state: ShardState
    records: int = 0
    payload_bytes: int = 0
    seen: ShardObservation = ShardObservation()  # noqa: RUF009 - is frozen


@dataclass(frozen=True, slots=True)
class BoundedResult:
    """The reason why a run ended, and the outcome of each shard, by `Shard.key`.

    - `records`: how many records the sink got, including those that it has rejected.
    """

    reason: EndReason
    shards: Mapping[str, ShardOutcome]
    records: int = 0

    def __str__(self) -> str:
        return f"{self.reason.name}, {counted(self.records, 'record')} to the sink"


def shard_outcome(
    entry: ShardEntry, before: tuple[int, int], past_event_time: Mapping[str, int | None]
) -> ShardOutcome:
    """Return the outcome of one shard.

    - `before`: records and bytes that were emitted before the run.
    - `past_event_time`: the next watermark of each shard that is past the bound.
    """
    is_past, behind_ms = entry.key in past_event_time, entry.metrics.millis_behind_latest
    failure = entry.metrics.last_failure
    return ShardOutcome(
        shard=entry.shard,
        state=replace(entry.state, tip_ms=entry.snapshot_state.tip_ms),
        records=entry.emission.records - before[0],
        payload_bytes=entry.emission.payload_bytes - before[1],
        seen=ShardObservation(
            at_tip=entry.reading.at_tip and not is_past,
            tip_seen_ms=entry.reading.tip_seen_ms,
            past_event_time=is_past,
            next_watermark=past_event_time.get(entry.key),
            silent_ms=entry.reading.idleness.observed_ms,
            behind_ms=None if behind_ms < 0 else behind_ms,
            children=entry.reading.children,
            failure=None if failure is None else str(failure),
            taken_over=entry.metrics.subscriptions_taken_over,
            refused=entry.metrics.subscriptions_refused,
        ),
    )
