"""MapSink: calls a function of the user for each record, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, overload

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State, Unfinished
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.bad_records import DEAD_LETTER_SINK, ON_BAD_RECORD, OnBadRecord
from recordpublisher.publishers.records import Record, RecordBatch, V

from .batch_wait import BatchWait
from .handled_positions import HandledPositions
from .handler import handlers_of
from .handler_tasks import HandlerTasks
from .ordering import Ordering, ReadyRecords
from .outcomes import MAP_SINK_METRICS, Outcomes
from .processing import JobPermission, Processing
from .running_calls import RunningCalls
from .settings import MapSettings, member
from .unhandled_record import UnhandledBatch, UnhandledRecord

MAX_BYTES = 64 * 1024 * 1024
WITH_DEAD_LETTERS = f"FAIL or SKIP, or this with {ON_BAD_RECORD.key}=DEAD_LETTER and {DEAD_LETTER_SINK.key}"


class MapSink(Sink[V]):
    """Calls `handler` for each record, up to `concurrency` at a time. Each record is handled at least once.

    The position of a shard follows what is handled without a gap: after a crash every record that was not handled is read again, and some
    that were. A slow record delays only records with its key, until `max_bytes` are waiting.

    - `handler`: an async function of one `Record`; or a plain function, which is called in threads and may block. One whose parameter is
      annotated with another type gets the deserialised value: `async def handle(order: Order)`. Or a mapping with one for each stream:
      `{"orders": on_order, "clicks": on_click}`.
    - `ordering`: PER_KEY handles records with the same partition key one after the other, also across a reshard; PER_SHARD those of a
      shard, after those of its parents; NONE keeps no order.
    - `batch_size`: with more than 1 the handler gets a list of up to that many records, and may return those that failed. If it raises, it
      is called with each half of the list again, until the record that fails stands alone. `batch_wait`: for how many seconds a list waits
      for more records.
    - `retries`: how often a record that failed is handled again, after pauses with full jitter of up to 0.2, 0.4, ... 10 s.
    - `timeout`: seconds after which an async handler is cancelled, which counts as a failure. None: no limit. Time in which the process was
      stopped does not count.
    - `max_age`: a record that arrived longer ago (seconds) is not handled: it is skipped and counted, or with DEAD_LETTER rejected. None:
      no limit.
    - `on_failure`: what becomes of a record after the last retry. FAIL ends the job with a SinkError. SKIP logs and counts it. DEAD_LETTER
      needs `flink.deserializer.error=DEAD_LETTER`, too.
    - `max_bytes`: of records that are written and not handled; one batch more is taken. Then reading waits.

    All handlers run in `concurrency` tasks; a handler should not change context variables.

    Raises: ConfigurationError that names the argument, its value and what is valid.
    """

    traces_writes = False
    tells_done = True

    @overload
    def __init__(
        self,
        handler: Callable[[Record[V]], object],
        *,
        concurrency: int = ...,
        ordering: str = ...,
        batch_size: int = ...,
        batch_wait: float = ...,
        retries: int = ...,
        timeout: float | None = ...,
        max_age: float | None = ...,
        on_failure: str = ...,
        max_bytes: int = ...,
        clock: Clock | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: MapSink[Any],
        handler: Callable[[Any], object] | Mapping[str, Callable[[Any], object]],
        *,
        concurrency: int = ...,
        ordering: str = ...,
        batch_size: int = ...,
        batch_wait: float = ...,
        retries: int = ...,
        timeout: float | None = ...,
        max_age: float | None = ...,
        on_failure: str = ...,
        max_bytes: int = ...,
        clock: Clock | None = ...,
    ) -> None: ...

    def __init__(
        self,
        handler: Callable[[Any], object] | Mapping[str, Callable[[Any], object]],
        *,
        concurrency: int = 64,
        ordering: str = "PER_KEY",
        batch_size: int = 1,
        batch_wait: float = 0.0,
        retries: int = 3,
        timeout: float | None = None,
        max_age: float | None = None,
        on_failure: str = "FAIL",
        max_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        settings = MapSettings(
            concurrency=concurrency,
            ordering=member("ordering", ordering, Ordering),
            batch_size=batch_size,
            batch_wait=batch_wait,
            retries=retries,
            timeout=timeout,
            max_age=max_age,
            on_failure=member("on_failure", on_failure, OnBadRecord),
            max_bytes=max_bytes,
        )
        clock = clock or SystemClock()
        self._given_handler = handler
        self._settings = settings
        self._clock = clock
        self._context = SinkContext()
        self._handler = handlers_of(handler, settings, clock)
        self._positions = HandledPositions()
        self._ready = ReadyRecords(settings.ordering)
        self._wait = BatchWait(self._ready.queue, batch_size, batch_wait, self._wake)
        self._outcomes = Outcomes(settings, self._ready, self._wake, self._on_changed, self._leave)
        self._permission = JobPermission(self._wake)
        self._running = RunningCalls(self._handler.call, self._handler.name_of, clock)
        processing = Processing(
            self._running.call, settings, self._ready, self._outcomes, clock, self._wait.reset, self._permission
        )
        self._tasks = HandlerTasks(concurrency, self._may_take, processing.handle_next, self._outcomes.fail)
        self._changed = asyncio.Event()

    def for_dead_letters(self) -> MapSink[V]:
        """A sink with the same handler and settings, which rejects what fails, and takes records of any age."""
        settings = replace(self._settings, max_age=None, on_failure=OnBadRecord.DEAD_LETTER)
        return MapSink(self._given_handler, clock=self._clock, **asdict(settings))

    def check(self, context: SinkContext) -> str:
        """What the handler gets, in words.

        Raises: ConfigurationError where a handler takes values of another type, a stream has none, or dead letters have no sink.
        """
        if context.has_dead_letters is False and self._settings.on_failure is OnBadRecord.DEAD_LETTER:
            raise ConfigurationError("on_failure", "DEAD_LETTER", WITH_DEAD_LETTERS, reason="the job writes none")
        return self._handler.check(context)

    async def check_values(self, context: SinkContext) -> str | None:
        """What the handler gets. Raises: as `check`."""
        return self.check(context)

    async def open(self, context: SinkContext) -> None:
        """Take the job's context. The tasks start with the first records. Raises: as `check`."""
        self.check(context)
        self._context = context
        self._outcomes.open(context.done)
        self._permission.open(context)
        self._running.open(context.traced)

    def has_room(self) -> bool:
        """Whether fewer than `max_bytes` are not handled; also after a record has failed the job, which `write` raises."""
        return self._is_below_limit() or self._outcomes.error is not None

    async def write(self, batch: RecordBatch) -> None:
        """Accept a batch; waits while `max_bytes` are not handled. Raises: SinkError after a record has failed the job."""
        shard = self._positions.shard(batch.shard.key)
        await self._wait_until(self._is_below_limit)
        if shard.is_revoked:
            return
        pending = UnhandledBatch(batch, shard)
        self._outcomes.written(pending)
        self._ready.add(pending)
        self._wake()

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when every record is handled; of shards that are given up, those up to the last one that a handler has begun. A checkpoint
        that may be partial is not waited for: it gets the state that is handled.

        Raises: SinkError after a record has failed the job.
        """
        if (
            checkpoint is not None
            and checkpoint.stopped
            and self._positions.give_up(checkpoint.stopped, checkpoint.state, self._clock.monotonic())
        ):
            self._drop_waiting()
        if checkpoint is None or not checkpoint.may_be_partial:
            self._wait.drain(True)
            self._wake()
            try:
                await self._wait_until(lambda: not self._outcomes.outstanding)
            finally:
                self._wait.drain(False)
        else:
            self._wait.drain(checkpoint.is_last or self._positions.has_unhandled(checkpoint.stopped))
            self._wake()
            await self._wait_until(lambda: True)
        if checkpoint is None:
            return None
        self._ready.learn(checkpoint.state)
        return self._positions.handled_state(checkpoint.state)

    def handled(self, state: State) -> State:
        """`state`, for each shard up to the first record that is not handled; also after a record has failed the job."""
        return self._positions.handled_state(state)

    def has_given_up(self, shard: str) -> bool:
        """Whether records of the shard were dropped, and all before them are handled."""
        return self._positions.has_given_up(shard)

    def unfinished(self) -> Unfinished:
        """How many records are not handled, and the one whose handler has run longest."""
        words, call = self._running.oldest()
        count, failed = self._outcomes.outstanding, self._outcomes.retries_planned
        waiting = f"waiting for a retry: {failed}" if failed else ""
        reason = ", ".join(filter(None, (f"records not handled: {count}", waiting, words)))
        return Unfinished(count, reason, call, self._running.count)

    async def close(self) -> None:
        """Cancel the handlers that run. Their records are not handled: the job reads them again."""
        self._outcomes.close()
        self._handler.close()
        self._running.close()
        await self._tasks.close()
        self._permission.close()
        self._wait.reset()
        self._ready.clear()

    def revoked(self, shards: Collection[str]) -> None:
        """Call no further handler for records of these shards. Those that run may end."""
        self._positions.revoke(shards)
        self._drop_waiting()

    def metrics(self) -> dict[str, Any]:
        """Counts of records: `outstanding` (written and not handled), `handled`, `retries`, `timeouts`, `expired`, `skipped`,
        `deadLetters`; and `heldBytes` of those outstanding."""
        return self._outcomes.metrics()

    def exported_metrics(self) -> list[SinkMetric]:
        """The same, with type, unit and meaning."""
        values = self.metrics()
        return [SinkMetric(name, *words, values[name]) for name, words in MAP_SINK_METRICS.items()]

    def _leave(self, item: UnhandledRecord) -> bool:
        is_left = self._positions.leave(item, self._clock.monotonic())
        if is_left:
            self._drop_waiting()
        return is_left

    def _drop_waiting(self) -> None:
        for item in self._ready.take_dropped():
            self._outcomes.handled(item)
        self._wake()

    def _is_below_limit(self) -> bool:
        return self._outcomes.held_bytes < self._settings.max_bytes

    async def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Meanwhile pass on what the job must decide. Raises: SinkError."""
        while True:
            self._changed.clear()
            await self._reject()
            if self._outcomes.error is not None:
                raise self._outcomes.error
            if is_reached():
                return
            await self._changed.wait()

    async def _reject(self) -> None:
        while items := list(self._outcomes.rejected):
            rejected = [(item.as_batch(), reason) for item, reason in items if not item.pending.shard.is_revoked]
            await self._context.reject_all(rejected, is_logged=True)
            for item, _ in items:
                self._outcomes.rejected.popleft()
                self._outcomes.handled(item)

    def _may_take(self) -> bool:
        return self._wait.may_take() and self._permission.is_given()

    def _wake(self) -> None:
        self._tasks.wake()

    def _on_changed(self, needs_sink_call: bool) -> None:
        self._changed.set()
        if self._outcomes.error is not None:
            self._tasks.stop()
        if needs_sink_call:
            self._context.request_checkpoint()
        if self.has_room():
            self._context.resume_writing()
