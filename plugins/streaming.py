"""`rp.stream` and `rp.consume`: batches or records by iteration, over the same fetcher."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ..fetcher.bounded import BoundedResult
from ..fetcher.sink import Sink, State
from ..fetcher.state_store import StateStore
from ..publishers.records import Record, RecordBatch
from .runtime import DataFetcher


@dataclass(frozen=True, slots=True)
class _Limits:
    """The bounds of a stream (see DataFetcher.run_bounded)."""

    max_time: float | None
    max_records: int | None
    max_bytes: int | None
    until_event_time: int | None
    stop_at_tip: bool


def stream(
    streams: str | Sequence[str],
    properties: Mapping[str, object],
    *,
    deserializer: Callable[[Record], Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
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
    sink = _HandOver()
    fetcher = DataFetcher(
        streams,
        properties,
        sink=sink,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        restore=restore,
        state_store=state_store,
    )
    return _batches(fetcher, sink, _Limits(max_time, max_records, max_bytes, until_event_time, stop_at_tip))


def consume(streams: str | Sequence[str], properties: Mapping[str, object], **options: Any) -> Iterator[Record]:
    """Records one by one, for scripts and notebooks: `for record in rp.consume(["orders"], properties)`.

    Takes the options of `stream`. Reads in a background thread, two batches ahead at most. Raises: ConfigurationError at once.
    """
    return _records(stream(streams, properties, **options))


class _HandOver(Sink):
    """Hands one batch at a time to an iteration; a write returns when the next is asked for."""

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._taken: asyncio.Future[None] | None = None
        self._arrived = asyncio.Event()

    async def write(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._taken = asyncio.get_running_loop().create_future()
        self._arrived.set()
        await self._taken

    async def next(self, running: asyncio.Task[BoundedResult]) -> RecordBatch | None:
        """The next batch, or None when the run is over."""
        arrived = asyncio.create_task(self._arrived.wait())
        try:
            await asyncio.wait({arrived, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
        self._arrived.clear()
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


class _AbandonedError(Exception):
    """The iteration was left while a batch was out."""


async def _batches(fetcher: DataFetcher, sink: _HandOver, limits: _Limits) -> AsyncGenerator[RecordBatch, None]:
    async with fetcher:
        bounds = (limits.max_time, limits.max_records, limits.max_bytes, limits.until_event_time, limits.stop_at_tip)
        running = asyncio.create_task(fetcher.run_bounded(*bounds))
        try:
            while (batch := await sink.next(running)) is not None:
                yield batch
                sink.done()
            await running
        finally:
            fetcher.stop()
            sink.abandon()
            await asyncio.gather(running, return_exceptions=True)


_END = object()


def _records(batches: AsyncGenerator[RecordBatch, None]) -> Generator[Record, None, None]:
    """Pump batches from a background loop through a bounded queue; leaving the iteration stops the loop."""
    handed: queue.Queue[Any] = queue.Queue(maxsize=1)
    left = threading.Event()
    pump = threading.Thread(target=lambda: asyncio.run(_pump(batches, handed, left)), name="rp.consume", daemon=True)
    pump.start()
    try:
        while (item := handed.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield from item
    finally:
        left.set()
        while pump.is_alive():
            _drain(handed)
            pump.join(0.05)


async def _pump(batches: AsyncGenerator[RecordBatch, None], handed: queue.Queue[Any], left: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()
    watcher = loop.run_in_executor(None, left.wait)
    watcher.add_done_callback(lambda _: running.cancel() if running and not running.done() else None)
    try:
        async with aclosing(batches) as each:
            async for batch in each:
                await loop.run_in_executor(None, handed.put, batch)
        last: object = _END
    except asyncio.CancelledError:
        last = _END
    except BaseException as error:
        last = error
    await loop.run_in_executor(None, handed.put, last)
    left.set()


def _drain(handed: queue.Queue[Any]) -> None:
    while not handed.empty():
        handed.get_nowait()
