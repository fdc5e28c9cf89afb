"""`rp.stream` and `rp.consume`: iterate over batches or records."""

from __future__ import annotations  # the reference and help() show types by their names

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TypeVar, Unpack

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.initial_position import from_the_oldest
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.generated.settings import JobSettings
from recordpublisher.publishers.records import Record, RecordBatch, V

from .arguments import checked_properties
from .background_loop import BackgroundLoop
from .data_fetcher import DataFetcher
from .short_errors import SHORT_ERRORS
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
    max_time: float | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    until_event_time: int | None = None,
    stop_at_tip: bool = False,
    **settings: Unpack[JobSettings],
) -> AsyncGenerator[RecordBatch[V], None]:
    """Batches as they are read: `async for batch in rp.stream("orders", region="eu-west-1")`.

    `streams`, properties, keyword arguments and functions are those of `DataFetcher`. A batch is done when the next one is requested. The
    iteration ends at a bound (seconds, records, bytes, epoch ms, or `stop_at_tip`), otherwise never. It starts where `flink.stream.initpos`
    says; when that is not set, at the oldest record with `stop_at_tip` (what there is now), else at the tip (what comes from now on).

    Raises: ConfigurationError at once, other errors from the iteration.
    """
    bounds = Bounds(max_time, max_records, max_bytes, until_event_time, stop_at_tip)
    sink = _IterationSink()
    given = checked_properties(properties, settings, stream, deserializer=deserializer)
    fetcher = DataFetcher(
        streams,
        from_the_oldest(given) if stop_at_tip else given,
        sink=sink,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        watermark_assigner=watermark_assigner,
        restore=restore,
        state_store=state_store,
    )
    return _batches(fetcher, sink, bounds)


def consume(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    deserializer: DeserializerArgument[V] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    watermark_assigner: Callable[[Record], int] | None = None,
    restore: State | Sequence[State] | None = None,
    state_store: ConditionalStore | None = None,
    max_time: float | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    until_event_time: int | None = None,
    stop_at_tip: bool = False,
    **settings: Unpack[JobSettings],
) -> Iterator[Record[V]]:
    """Records one by one, for scripts and notebooks: `for record in rp.consume("orders", region="eu-west-1")`.

    Takes the arguments of `stream`, and starts where it starts. The event loop runs in a thread of its own. A batch is done when the record
    after its last one is requested.

    Raises: ConfigurationError at once, other errors from the iteration.
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
    return _records(batches)


class _IterationSink(Sink):
    """Passes one batch at a time to an iteration; `write` returns when the next batch is requested."""

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
        """Wait for the next batch; None when the run has ended."""
        if self._batch is None and not running.done():
            self._batch_requested = asyncio.get_running_loop().create_future()
            running.add_done_callback(self._wake_iteration)
            await self._batch_requested
            running.remove_done_callback(self._wake_iteration)
        batch, self._batch = self._batch, None
        return batch

    def done(self) -> None:
        """The iteration has finished with the batch: let its `write` return."""
        if self._batch_done is not None and not self._batch_done.done():
            self._batch_done.set_result(None)

    def abandon(self) -> None:
        """The iteration has ended early: fail a waiting `write`, so that its batch does not count as written."""
        if self._batch_done is not None and not self._batch_done.done():
            self._batch_done.set_exception(_AbandonedError())

    def _wake_iteration(self, _: object = None) -> None:
        if self._batch_requested is not None and not self._batch_requested.done():
            self._batch_requested.set_result(None)


class _AbandonedError(Exception):
    """The iteration ended before it had finished with its batch."""


async def _batches(fetcher: DataFetcher, sink: _IterationSink, bounds: Bounds) -> AsyncGenerator[RecordBatch, None]:
    async with fetcher:
        limits = (bounds.max_time, bounds.max_records, bounds.max_bytes, bounds.until_event_time, bounds.stop_at_tip)
        running = asyncio.create_task(fetcher.run_bounded(*limits))
        try:
            while (batch := await sink.next(running)) is not None:
                yield batch
                sink.done()
            result = await running
            log.info("the run ended: %s, %s", result.reason.name, counted(result.records, "record"))
        finally:
            fetcher.stop()
            sink.abandon()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(ended, Exception) and not isinstance(ended, _AbandonedError):
                log.debug("the run ended with %r", ended)


def _records(batches: AsyncGenerator[RecordBatch, None]) -> Generator[Record, None, None]:
    with closing(in_background("rp.consume", batches)) as read:
        for batch in read:
            yield from batch


def in_background(name: str, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """What an asynchronous iteration returns, which runs in a loop and thread of its own. Ending the iteration ends them."""
    with SHORT_ERRORS, BackgroundLoop(name) as loop:
        try:
            while (item := loop.run(_next(items))) is not None:
                yield item
        finally:
            loop.close(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)
