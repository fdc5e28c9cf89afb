"""`MapSink`, which calls a function of the user for each record, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack, overload

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State, Unfinished
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import import_check, imported_function, values_of
from recordpublisher.publishers.properties.job_properties import (
    DEAD_LETTER_SINK,
    MAP_ON_FAILURE,
    ON_BAD_RECORD,
    OnBadRecord,
    OnFailureName,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import MAP_FUNCTION, MAP_TIMEOUT
from recordpublisher.publishers.properties.times_and_sizes import Duration, seconds_of
from recordpublisher.publishers.records import Record, RecordBatch, V
from recordpublisher.publishers.user_code import is_coroutine_function

from .handled_positions import HandledPositions
from .handler import make_handler, name_of_function
from .handling import MAP_SINK_METRICS, MapSettings, RecordHandling, enum_member
from .key_order import Ordering, OrderingName, UnhandledBatch

MAX_BYTES = 64 * 1024 * 1024
_WITH_DEAD_LETTERS = f"FAIL or SKIP, or this with {ON_BAD_RECORD.key}=DEAD_LETTER and {DEAD_LETTER_SINK.key}"


class MapSink(Sink[V]):
    """Calls a handler for each record, up to `concurrency` at a time. Each record is handled at least once.

    The stored position of a shard moves past a record when this record and all records before it are handled. After a crash the job reads
    again every record that was not handled, and some that were. A slow record delays only the records with its key, until `max_bytes` of
    records are waiting.

    - `handler`: an async function of one `Record`; or a plain function, which is called in threads and may block. If its
      parameter is annotated with another type, it receives the deserialized value: `async def handle(order: Order)`. A mapping
      has a handler for each stream: `{"orders": on_order, "clicks": on_click}`.
    - `concurrency`: number of handlers that may run at the same time.
    - `ordering`: PER_KEY handles records with the same partition key one after the other, including across a reshard. PER_SHARD
      handles the records of a shard one after the other, and after those of its parent shards. NONE keeps no order.
    - `batch_size`: number of records in a list. If it is above 1, the handler receives lists of up to this many records, and may
      return the records that failed. If it raises an error, it is called with each half of the list again, until the record that
      fails is alone. A handler of one stream gets lists of that stream.
    - `batch_wait`: how long a list waits for more records (seconds).
    - `retries`: how often a failed record is handled again. The pauses are random, up to 0.2 s, 0.4 s and so on, at most 10 s.
      A record for which the handler raises InvalidRecordError is not handled again.
    - `retry_for`: how long a failed record is handled again (seconds), and at least `retries` times. Set it to how long the
      services that the handler calls may be unavailable.
    - `timeout`: how long an async handler may run (seconds) before it is cancelled and its record has failed; None for no limit.
      Time in which the process was stopped does not count.
    - `max_age`: how long after its arrival a record may be handled (seconds); None for no limit. An older record is skipped and
      counted, or rejected with DEAD_LETTER.
    - `on_failure`: what happens to a record after its last retry. FAIL ends the job with a SinkError. SKIP logs and counts the
      record. DEAD_LETTER rejects it, and needs `flink.deserializer.error=DEAD_LETTER` as well.
    - `max_bytes`: memory for records that are written and not handled (bytes). The sink takes one batch more, and then reading
      waits.
    - `clock`: where the sink takes the time from, by default the clock of the job.

    Durations are seconds, texts such as `15m`, or a `timedelta`. A number of 1000 or more was probably meant in milliseconds, and is
    refused, except for `max_age`.

    All handlers run in `concurrency` tasks, so a handler should not change context variables.

    Raises: ConfigurationError, which names the argument and the valid values, if an argument is invalid.
    """

    traces_writes = False
    tells_done = True

    # The overloads bind V to what the handler takes (a record, a list or a value), so that type checkers compare it with the job's
    # deserializer.
    @overload
    def __init__(
        self, handler: Callable[[list[Record[V]]], object], *, batch_size: int, **options: Unpack[_ListOptions]
    ) -> None: ...

    @overload
    def __init__(
        self, handler: Callable[[list[V]], object], *, batch_size: int, **options: Unpack[_ListOptions]
    ) -> None: ...

    @overload
    def __init__(self, handler: Callable[[Record[V]], object], **options: Unpack[_MapOptions]) -> None: ...

    @overload
    def __init__(self, handler: Callable[[V], object], **options: Unpack[_MapOptions]) -> None: ...

    @overload
    def __init__(
        self: MapSink[Any], handler: Mapping[str, Callable[[Any], object]], **options: Unpack[_MapOptions]
    ) -> None: ...

    def __init__(
        self,
        handler: Callable[[Any], object] | Mapping[str, Callable[[Any], object]],
        *,
        concurrency: int = 64,
        ordering: OrderingName = "PER_KEY",
        batch_size: int = 1,
        batch_wait: Duration = 0.0,
        retries: int = 3,
        retry_for: Duration = 0.0,
        timeout: Duration | None = None,
        max_age: Duration | None = None,
        on_failure: OnFailureName = "FAIL",
        max_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        settings = MapSettings(
            concurrency=concurrency,
            ordering=enum_member("ordering", ordering, Ordering),
            batch_size=batch_size,
            batch_wait=seconds_of("batch_wait", batch_wait),
            retries=retries,
            retry_for=seconds_of("retry_for", retry_for),
            timeout=None if timeout is None else seconds_of("timeout", timeout),
            max_age=None if max_age is None else seconds_of("max_age", max_age, may_be_long=True),
            on_failure=enum_member("on_failure", on_failure, OnBadRecord),
            max_bytes=max_bytes,
        )
        self._set_up(handler, settings, clock, clock or SystemClock())

    def _set_up(self, handler: Any, settings: MapSettings, given_clock: Clock | None, clock: Clock) -> None:
        self._given_handler = handler
        self._settings = settings
        self._given_clock, self._clock = given_clock, clock
        self._handler = make_handler(
            handler,
            batch_size=settings.batch_size,
            threads=settings.concurrency,
            timeout=settings.timeout,
            clock=clock,
        )
        self._is_closed = False
        self._positions = HandledPositions()
        self._handling = RecordHandling(self._handler, settings, self._positions, self._clock)

    def for_dead_letters(self) -> MapSink[V]:
        """Return a sink for dead letters with the same handler and settings. It rejects failed records, and handles records of any age."""
        settings = replace(self._settings, max_age=None, on_failure=OnBadRecord.DEAD_LETTER)
        sink: MapSink[V] = MapSink.__new__(MapSink)
        sink._set_up(self._given_handler, settings, self._given_clock, self._clock)
        return sink

    def handler_name(self) -> str:
        """Return the name of the handler, or those of the handlers of several streams."""
        given = self._given_handler
        functions = given.values() if isinstance(given, Mapping) else [given]
        return ", ".join(sorted({name_of_function(each) for each in functions}))

    def check(self, context: SinkContext) -> str:
        """Return a sentence that says what the handler receives.

        Raises: ConfigurationError if a handler takes values of another type, if a stream has no handler, or if dead letters have no sink.
        """
        if context.has_dead_letters is False and self._settings.on_failure is OnBadRecord.DEAD_LETTER:
            raise ConfigurationError("on_failure", "DEAD_LETTER", _WITH_DEAD_LETTERS, reason="the job writes none")
        return self._handler.check(context)

    async def check_values(self, context: SinkContext) -> str | None:
        """Return a sentence that says what the handler receives. Raises: the errors of `check`."""
        return self.check(context)

    async def open(self, context: SinkContext) -> None:
        """Connect the sink to the job. Tasks start with the first records. Raises: the errors of `check`."""
        clock = self._given_clock or context.clock
        if self._is_closed or self._clock is not clock:  # A program may give the sink to its next DataFetcher.
            self._set_up(self._given_handler, self._settings, self._given_clock, clock)
        self.check(context)
        self._positions.open(context.drain_seconds)
        self._handling.open(context)

    def has_room(self) -> bool:
        """Return whether `write` would not wait: unhandled records have less than `max_bytes`, or a record has failed the job."""
        return self._handling.has_room()

    async def write(self, batch: RecordBatch) -> None:
        """Queue the records of a batch for the handler. Wait while unhandled records have `max_bytes` or more.

        Raises: SinkError if a record has failed the job.
        """
        progress = self._positions.progress(batch.shard.key)
        await self._handling.wait_for_room()
        # If another process has taken over the shard during the wait, that process reads the batch again.
        if not progress.is_revoked:
            self._handling.add(UnhandledBatch(batch, progress))

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Wait until every record is handled, and return the state to store.

        - If the checkpoint may be partial, do not wait. The state then has the position before the first record that is not handled.
        - Drop the records of stopped shards that no handler has begun. The next reader handles them.

        Raises: SinkError if a record has failed the job.
        """
        # 1. Release the stopped shards.
        if checkpoint is not None and checkpoint.stopped:
            now = self._clock.monotonic()
            if self._positions.release(checkpoint.stopped, checkpoint.state, now):
                self._handling.finish_dropped()
            self._handling.leave_failed()
            self._handling.retry_released(now)
        # 2. Wait for the handlers, or only pass on the results that there are.
        if checkpoint is None or not checkpoint.may_be_partial:
            await self._handling.wait_until_handled()
        else:
            # Incomplete lists are handled at once if no more records will come, or if stopped shards wait for them.
            is_draining = checkpoint.is_last or self._positions.has_unhandled(checkpoint.stopped)
            await self._handling.report(is_draining=is_draining)
        # 3. Return the positions up to which each shard is handled.
        if checkpoint is None:
            return None
        self._handling.learn_parents(checkpoint.state)
        return self._positions.handled_state(checkpoint.state)

    def may_flush_after_error(self) -> bool:
        """Return True. The sink knows which records are handled, so the job may store their positions even after an error.

        Call this once. A record that fails after the call is left to the next start.
        """
        self._handling.continue_after_error()
        return True

    def handled(self, state: State) -> State:
        """Return `state` with the position of each shard before its first unhandled record, even if a record has failed the job."""
        return self._positions.handled_state(state)

    def has_stopped(self, shard: str) -> bool:
        """Return whether records of the shard were dropped here, and all records before them are handled."""
        return self._positions.has_dropped_the_rest(shard)

    def revoked(self, shards: Collection[str]) -> None:
        """Start no more handlers for records of these shards. Handlers that run are not cancelled."""
        self._positions.revoke(shards)
        self._handling.finish_dropped()

    async def close(self) -> None:
        """Cancel the handlers that run. The job reads their records again at its next start."""
        self._is_closed = True
        await self._handling.close()

    def unfinished(self) -> Unfinished:
        """Return how many records are not handled, and the record whose handler has run longest."""
        return self._handling.unfinished()

    def metrics(self) -> dict[str, Any]:
        """Return counts of records, the memory of the outstanding records (`heldBytes`), and two histograms.

        The counts are `outstanding` (written and not handled), `handled`, `retries`, `timeouts`, `expired`, `left` (for the next reader),
        `skipped` and `deadLetters`. The histograms are `handlerDurationMs`, the durations of the handler's calls, and
        `handlingDelayMs`, how long after their arrival in the stream records were handled; each is what `rp.Histogram.value` returns.
        """
        return self._handling.metrics()

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the values of `metrics` with type, unit and meaning."""
        values = self.metrics()
        return [SinkMetric(name, *words, values[name]) for name, words in MAP_SINK_METRICS.items()]


class ListOptions(TypedDict, total=False):
    """The settings of `MapSink` for a handler of lists, without `batch_size`. That one is required there, so it is declared separately."""

    concurrency: int
    ordering: OrderingName
    batch_wait: Duration
    retries: int
    retry_for: Duration
    timeout: Duration | None
    max_age: Duration | None
    on_failure: OnFailureName
    max_bytes: int


class MapOptions(ListOptions, total=False):
    """The settings of `MapSink` that `lambda_handler` takes."""

    batch_size: int


class _ListOptions(ListOptions, total=False):
    clock: Clock | None


class _MapOptions(MapOptions, total=False):
    clock: Clock | None


class MapSinkFromProperties(MapSink):
    """The `MapSink` of a job that has `flink.sink = map`, with the arguments `flink.sink.map.*`.

    Raises: ConfigurationError if a value is invalid, or if the function cannot be imported.
    """

    def __init__(self, properties: Properties) -> None:
        value = properties.value
        timeout = value(MAP_TIMEOUT)
        function = imported_function(properties, MAP_FUNCTION, "module:function, of a function of a Record")
        # Checked here because the errors of MapSink would name its arguments instead of the properties.
        if timeout is not None and not is_coroutine_function(function):
            reason = "a plain function runs in a thread, which cannot be ended"
            raise ConfigurationError.needs(MAP_TIMEOUT.key, "an async function", reason=reason)
        if value(MAP_ON_FAILURE) == "DEAD_LETTER" and value(ON_BAD_RECORD) != "DEAD_LETTER":
            reason = f"with {ON_BAD_RECORD.key}={value(ON_BAD_RECORD)} none is written"
            raise ConfigurationError(MAP_ON_FAILURE.key, "DEAD_LETTER", _WITH_DEAD_LETTERS, reason=reason)
        self._function = function
        self._set_up(function, MapSettings(**values_of(MapSettings, properties)), None, SystemClock())

    def destination(self) -> str:
        """Return "MapSink", so that a process with a `rp.MapSink` of its program can be a worker of the same group."""
        return MapSink.__name__

    def checks(self) -> Checks:
        """Return the check for `recordpublisher doctor` that the function was imported."""
        return {"function": import_check(self._function)}
