"""`rp.stream` and `rp.consume`: iterate over batches or records."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, Unpack

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.initial_position import with_oldest_start
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER_SINK, JOB_WORKERS, ON_BAD_RECORD, STATE_URI
from recordpublisher.publishers.properties.keyword_types import JobSettings
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_LIVE, RECORD_PUBLISHER
from recordpublisher.publishers.properties.retry_properties import with_short_outages
from recordpublisher.publishers.properties.times_and_sizes import Duration, seconds_of
from recordpublisher.publishers.records import Record, RecordBatch, V

from .argument_checks import checked_properties
from .background_loop import BackgroundLoop, EarlyEnd
from .data_fetcher import DataFetcher
from .stop_signals import SHORT_ERRORS
from .stream_names import StreamsArgument

log = logging.getLogger("recordpublisher.stream")
T = TypeVar("T")


def stream(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    deserializer: DeserializerArgument[V] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    watermark_assigner: Callable[[Record], int] | None = None,
    restore: State | Sequence[State] | None = None,
    state_store: ConditionalStore | None = None,
    max_time: Duration | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    until_event_time: int | None = None,
    stop_at_tip: bool = False,
    **settings: Unpack[JobSettings],
) -> AsyncGenerator[RecordBatch[V], None]:
    """Return an iterator over batches as they are read: `async for batch in rp.stream("orders", region="eu-west-1")`.

    `streams`, properties, keyword arguments and functions are the same as for `DataFetcher`. A batch is finished when the next one is
    requested. The iteration ends at a bound (a duration, records, bytes, epoch ms, or `stop_at_tip`); without a bound it does not end. A
    cancelled wait for the next batch, as by `asyncio.timeout`, ends it too.

    It starts where `flink.stream.initpos` (`start="1h"`) says. If that is not set, it starts at the oldest record if `stop_at_tip` or a
    bound of records, bytes or event time is given, and otherwise at the tip, with the records that arrive from now on.

    - Positions are stored only if the call itself says where, with `state_uri` or `state_store`. Then the iteration runs as the job whose
      positions these are, and resumes there. If that job already runs in another process, that process ends with FencedError.
    - Otherwise the iteration does not act as a job. From a job's `properties` it ignores the store of positions, the group and the dead
      letters: a bad record that would become one is skipped. It polls, and does not use the job's consumer of enhanced fan-out.

    While a service is unavailable, calls are retried for `max_outage`: 30 s if the iteration has a bound, otherwise 15 minutes.

    Raises: ConfigurationError at once; other errors from the iteration.
    """
    seconds = None if max_time is None else seconds_of("max_time", max_time, may_be_long=True)
    bounds = Bounds(seconds, max_records, max_bytes, until_event_time, stop_at_tip)
    sink = _IterationSink()
    given = checked_properties(properties, settings, stream, deserializer=deserializer)
    # An argument that is None counts as not given: `state_uri=config.get("state")` does not ask for the positions of the job.
    if state_store is None and settings.get("state_uri") is None:
        if given.is_set(STATE_URI):
            log.warning(
                "rp.stream and rp.consume ignore %s in the mapping: they neither resume at stored positions nor store any. "
                "To read as that job, pass state_uri=... or state_store=... to the call",
                STATE_URI.key,
            )
        look = without_job_identity(given).merged(Properties(**settings))
        for each, argument in _SUBSCRIBING.items():
            if look.value(each) != given.value(each):
                text = (
                    "rp.stream and rp.consume poll, although the mapping has %s=EFO, because that may be the setting "
                    "of a job. To subscribe, pass %s='EFO' to the call"
                )
                log.warning(text, each.key, argument)
        given = look
    if bounds != Bounds():
        given = with_short_outages(given)
    fetcher = DataFetcher(
        streams,
        # A read of the tip with only a time is one of new records. Any other bound may wait there for ever.
        given if replace(bounds, max_time=None) == Bounds() else with_oldest_start(given),
        sink=sink,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        watermark_assigner=watermark_assigner,
        restore=restore,
        state_store=state_store,
    )
    return _BatchIterator(_batches(fetcher, sink, bounds))


def consume(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    deserializer: DeserializerArgument[V] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    watermark_assigner: Callable[[Record], int] | None = None,
    restore: State | Sequence[State] | None = None,
    state_store: ConditionalStore | None = None,
    max_time: Duration | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    until_event_time: int | None = None,
    stop_at_tip: bool = False,
    **settings: Unpack[JobSettings],
) -> Records[V]:
    """Return an iterator over records: `for record in rp.consume("orders", region="eu-west-1")`, or `async for` in asyncio code.

    Takes the arguments of `stream`, and starts where `stream` starts. With `for` the event loop runs in a thread of its own. A batch of
    records is finished when the loop requests a record after the last one of the batch.

    Raises: ConfigurationError at once; other errors from the iteration.
    """
    batches = stream(
        streams,
        properties,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        watermark_assigner=watermark_assigner,
        restore=restore,
        state_store=state_store,
        max_time=max_time,
        max_records=max_records,
        max_bytes=max_bytes,
        until_event_time=until_event_time,
        stop_at_tip=stop_at_tip,
        **settings,
    )
    return Records(batches)


class _IterationSink(Sink):
    """Passes one batch at a time to an iteration. `write` returns when the iteration requests the next batch."""

    traces_writes = False

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._batch_done: asyncio.Future[None] | None = None
        self._batch_requested: asyncio.Future[None] | None = None

    async def write(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._batch_done = asyncio.get_running_loop().create_future()
        self._wake_iteration()
        await self._batch_done

    async def next(self, running: asyncio.Task[BoundedResult]) -> RecordBatch | None:
        """Wait for the next batch, and return it. Return None if `running`, the task that reads, has ended."""
        if self._batch is None and not running.done():
            self._batch_requested = asyncio.get_running_loop().create_future()
            running.add_done_callback(self._wake_iteration)
            await self._batch_requested
            running.remove_done_callback(self._wake_iteration)
        batch, self._batch = self._batch, None
        return batch

    def done(self) -> None:
        """Let `write` return, because the iteration has finished with its batch."""
        if self._batch_done is not None and not self._batch_done.done():
            self._batch_done.set_result(None)

    def abandon(self) -> None:
        """Fail a waiting `write`, because the iteration has ended early. Its batch then does not count as written."""
        if self._batch_done is not None and not self._batch_done.done():
            self._batch_done.set_exception(_AbandonedError())

    def _wake_iteration(self, _: object = None) -> None:
        if self._batch_requested is not None and not self._batch_requested.done():
            self._batch_requested.set_result(None)


class _AbandonedError(Exception):
    """Raised in the sink's `write` if the iteration ends before it has finished with the batch."""


async def _batches(fetcher: DataFetcher, sink: _IterationSink, bounds: Bounds) -> AsyncGenerator[RecordBatch, None]:
    async with fetcher:
        max_time = None if bounds.max_time is None else timedelta(seconds=bounds.max_time)
        limits = (max_time, bounds.max_records, bounds.max_bytes, bounds.until_event_time, bounds.stop_at_tip)
        running = asyncio.create_task(fetcher.run_bounded(*limits))
        try:
            while (batch := await sink.next(running)) is not None:
                yield batch
                sink.done()
            result = await running
            log.info("the run ended: %s", result)
        finally:
            fetcher.stop()
            sink.abandon()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(ended, Exception) and not isinstance(ended, _AbandonedError):
                log.debug("the run ended with %r", ended)


class _BatchIterator(AsyncGenerator[RecordBatch[V], None]):
    """The iterator that `stream` returns. A `for` over it, instead of `async for`, raises an error that says what to write."""

    def __init__(self, batches: AsyncGenerator[RecordBatch[V], None]) -> None:
        self._batches = batches

    async def asend(self, value: None) -> RecordBatch[V]:
        return await self._batches.asend(value)

    async def athrow(self, *error: Any) -> RecordBatch[V]:
        return await self._batches.athrow(*error)

    async def aclose(self) -> None:
        await self._batches.aclose()

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "rp.stream needs 'async for', in a coroutine. Without asyncio use 'for record in rp.consume(...)'"
        )


class Records(Iterator[Record[V]], AsyncIterator[Record[V]]):
    """The records that `consume` reads, for `for` or for `async for`. `close` or `aclose` ends the read early.

    The iteration raises RecordPublisherError in these cases:

    - A loop of the other kind has already begun to read.
    - `for` runs in a coroutine.
    - The wait for an earlier record was cancelled.
    """

    def __init__(self, batches: AsyncGenerator[RecordBatch[V], None]) -> None:
        self._unread = [batches]  # The first loop takes the batches, because only its event loop can continue the read.
        self._early_end = EarlyEnd()
        self._in_thread = _records_in_thread(self._unread, self._early_end)
        self._in_loop: AsyncGenerator[RecordBatch[V], None] | None = None
        self._of_batch: Iterator[Record[V]] = iter(())
        self._was_cancelled = False

    def __next__(self) -> Record[V]:
        if self._unread:
            _refuse_in_coroutine()
        return next(self._in_thread)

    def close(self) -> None:
        """End a read by `for`, and wait until everything is closed. Any thread may call this."""
        self._early_end.close(self._in_thread)

    async def __anext__(self) -> Record[V]:
        # The generator of the batches is not wrapped in another one. At its end a loop closes all generators at once, and it is an
        # error to close a generator that another one is just closing.
        if self._in_loop is None:
            self._in_loop = _taken(self._unread)
        while (record := next(self._of_batch, None)) is None:
            if self._was_cancelled:
                raise RecordPublisherError(
                    "a wait for the next record was cancelled, for example by asyncio.timeout, which has ended the read. Do other "
                    "work in a task of its own"
                )
            try:
                self._of_batch = iter(await anext(self._in_loop))
            except asyncio.CancelledError:
                # Python has ended the generator, which would look like the end of the records from now on.
                self._was_cancelled = True
                raise
        return record

    async def aclose(self) -> None:
        """End a read by `async for`, and wait until everything is closed."""
        self._of_batch = iter(())
        if self._unread:
            self._in_loop = _taken(self._unread)
        if self._in_loop is not None:
            await self._in_loop.aclose()


def _refuse_in_coroutine() -> None:
    """Raise RecordPublisherError if the caller is a coroutine, because the call would block its event loop."""
    # The cells of a notebook run in its loop, and wait there as they do for any other call.
    if "ipykernel" in sys.modules:
        return
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise RecordPublisherError(
            "`for` over rp.consume would block the running event loop: write `async for record in rp.consume(...)`"
        )


def _records_in_thread(
    unread: list[AsyncGenerator[RecordBatch[V], None]], early_end: EarlyEnd
) -> Generator[Record[V], None, None]:
    with closing(in_background("rp.consume", _taken(unread), early_end)) as read:
        for batch in read:
            yield from batch


def _taken(unread: list[AsyncGenerator[RecordBatch[V], None]]) -> AsyncGenerator[RecordBatch[V], None]:
    if not unread:
        raise RecordPublisherError(
            "another loop has already begun to read these records: continue with the kind of loop that began, `for` or `async for`"
        )
    return unread.pop()


def in_background(
    name: str, items: AsyncGenerator[T, None], early_end: EarlyEnd | None = None
) -> Generator[T, None, None]:
    """Iterate over the items of an asynchronous generator, which runs in an event loop and a thread of its own.

    The loop and the thread end when there are no more items, when the caller stops the iteration, or when another thread requests
    `early_end`.
    """
    end = early_end or EarlyEnd()
    try:
        # The loop keeps the items, so that the garbage collector cannot close them while this function does.
        with SHORT_ERRORS, BackgroundLoop(name, kept=items) as loop:
            end.loop = loop
            try:
                while not end.is_requested and (item := loop.run(_next(items))) is not None:
                    yield item
            except TimeoutError:
                if not end.is_requested:
                    raise
            finally:
                loop.close(items.aclose())
    finally:
        end.ended.set()


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)


# --- the properties of a read that must not act as the job ----------------------------------------------------------------------------

_SUBSCRIBING = {RECORD_PUBLISHER: "publisher", ARCHIVE_LIVE: "archive_live"}
"""The properties that can choose enhanced fan-out, and their keyword arguments."""


def without_job_identity(job: Properties) -> Properties:
    """Return the properties of a job for a reader that must not act as the job.

    These properties name no store, group of workers or dead letters: a bad record that would become one is skipped. The reader polls. With
    the job's fan-out consumer it would end the job's subscriptions, and could deregister the consumer at its end.
    """
    is_kept = job.value(ON_BAD_RECORD) != "DEAD_LETTER"
    polled = [each.key for each in _SUBSCRIBING if job.value(each) == "EFO"]
    look: dict[str, str | None] = dict.fromkeys((STATE_URI.key, JOB_WORKERS.key, *polled), None)
    return job.merged(look if is_kept else {**look, ON_BAD_RECORD.key: "SKIP", DEAD_LETTER_SINK.key: None})
