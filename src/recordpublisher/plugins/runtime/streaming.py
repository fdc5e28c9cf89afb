"""`rp.stream` and `rp.consume`: batches or records by iteration, over the same fetcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.records import Record, RecordBatch

from .background_loop import BackgroundLoop
from .data_fetcher import DataFetcher

log = logging.getLogger("recordpublisher.stream")


def stream(
    streams: str | Sequence[str],
    properties: Mapping[str, object],
    *,
    deserializer: Callable[[Record], Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    watermark_assigner: Callable[[Record], int] | None = None,
    restore: State | Sequence[State] | None = None,
    state_store: StateStore | None = None,
    max_time: float | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    until_event_time: int | None = None,
    stop_at_tip: bool = False,
) -> AsyncGenerator[RecordBatch, None]:
    """Batches as they are read: `async for batch in rp.stream(["orders"], properties)`.

    A batch counts as done when the next one is asked for; what the loop does meanwhile is the back-pressure. Ends at a bound (seconds,
    records, bytes, epoch ms, or `stop_at_tip`), otherwise never. Raises: ConfigurationError at once, other errors from the iteration.
    """
    bounds = Bounds(max_time, max_records, max_bytes, until_event_time, stop_at_tip)
    sink = _HandOver()
    fetcher = DataFetcher(
        streams,
        properties,
        sink=sink,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        watermark_assigner=watermark_assigner,
        restore=restore,
        state_store=state_store,
    )
    return _batches(fetcher, sink, bounds)


def consume(streams: str | Sequence[str], properties: Mapping[str, object], **options: Any) -> Iterator[Record]:
    """Records one by one, for scripts and notebooks: `for record in rp.consume(["orders"], properties)`.

    Takes the options of `stream`. The loop runs in a thread of its own, also where one runs already (notebooks); a batch counts as done
    when its last record was taken and the next is asked for. Raises: ConfigurationError at once, other errors from the iteration.
    """
    return _records(stream(streams, properties, **options))


class _HandOver(Sink):
    """Hands one batch at a time to an iteration; a write returns when the next is asked for."""

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._taken: asyncio.Future[None] | None = None
        self._asked: asyncio.Future[None] | None = None

    async def write(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._taken = asyncio.get_running_loop().create_future()
        self._answer()
        await self._taken

    async def next(self, running: asyncio.Task[BoundedResult]) -> RecordBatch | None:
        """The next batch, or None when the run is over."""
        if self._batch is None and not running.done():
            self._asked = asyncio.get_running_loop().create_future()
            running.add_done_callback(self._answer)
            await self._asked
            running.remove_done_callback(self._answer)
        batch, self._batch = self._batch, None
        return batch

    def done(self) -> None:
        """The iteration is through with the batch."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    def abandon(self) -> None:
        """Nobody asks any more: a write that waits fails, so that its batch does not count."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_exception(_AbandonedError())

    def _answer(self, _: object = None) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)


class _AbandonedError(Exception):
    """The iteration was left while a batch was out."""


async def _batches(fetcher: DataFetcher, sink: _HandOver, bounds: Bounds) -> AsyncGenerator[RecordBatch, None]:
    async with fetcher:
        limits = (bounds.max_time, bounds.max_records, bounds.max_bytes, bounds.until_event_time, bounds.stop_at_tip)
        running = asyncio.create_task(fetcher.run_bounded(*limits))
        try:
            while (batch := await sink.next(running)) is not None:
                yield batch
                sink.done()
            await running
        finally:
            fetcher.stop()
            sink.abandon()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(ended, Exception) and not isinstance(ended, _AbandonedError):
                log.debug("the run ended with %r", ended)


def _records(batches: AsyncGenerator[RecordBatch, None]) -> Generator[Record, None, None]:
    """Batches from a loop in the background, record by record; leaving the iteration ends the loop."""
    with BackgroundLoop("rp.consume") as loop:
        try:
            while (batch := loop.run(_next(batches))) is not None:
                yield from batch
        finally:
            loop.run(batches.aclose())


async def _next(batches: AsyncGenerator[RecordBatch, None]) -> RecordBatch | None:
    return await anext(batches, None)
