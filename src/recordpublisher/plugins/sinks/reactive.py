"""ReactiveSink: records as a reactivex Observable, with the back-pressure that reactivex itself lacks."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.subject import Subject

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.property_types import integer
from recordpublisher.publishers.records import Record, RecordBatch

BUFFER = integer(
    "flink.sink.reactive.buffer",
    "Records that may wait for the observers of the reactive sink; 0: a write returns when they are done with its batch.",
    10_000,
    unit="records",
    group="Sinks",
)


MAX_QUEUED_EVENTS = 1_000
"""Batches and watermarks that may wait. Watermarks have no records, so a limit in records alone would not bound the queue."""


class ReactiveSink(Sink):
    """Passes batches to the observers, one after the other, in a thread of its own; owns the batches that wait for them.

    An observer acknowledges by returning from `on_next`. `write` returns when at most `buffer` records wait, `flush` (and so a
    checkpoint) when none waits. An observer that raises fails the sink: the others get `on_error`, the next `write` or `flush` raises
    SinkError. `close` calls `on_completed`.

    Observers run in the sink's thread and may block. An observer gets only what is written after its subscription.
    """

    traces_writes = False

    def __init__(self, properties: Mapping[str, object] | None = None, *, buffer: int | None = None) -> None:
        self._buffer = buffer if buffer is not None else Properties(properties).value(BUFFER)
        self._batches: Subject[RecordBatch] = Subject()
        self._watermarks: Subject[int] = Subject()
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._failure: Exception | None = None
        self._thread: ThreadPoolExecutor | None = None

    @property
    def batches(self) -> Observable[RecordBatch]:
        """Every batch written."""
        return self._batches

    @property
    def watermarks(self) -> Observable[int]:
        """Every watermark (epoch ms), in order with the batches."""
        return self._watermarks

    @property
    def records(self) -> Observable[Record]:
        """Every record written, one by one."""

        def subscribe(observer: ObserverBase[Record], scheduler: SchedulerBase | None = None) -> DisposableBase:
            def each(batch: RecordBatch) -> None:
                for record in batch:
                    observer.on_next(record)

            return self._batches.subscribe(each, observer.on_error, observer.on_completed)

        return Observable(subscribe)

    @property
    def waiting_records(self) -> int:
        """Records written that the observers have not finished."""
        return sum(self._waiting.values())

    async def open(self, context: SinkContext) -> State | None:
        """Start the thread of the observers."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-observers")
        return None

    async def write(self, batch: RecordBatch) -> None:
        """Queue the batch and return when at most `buffer` records wait. Raises: SinkError when an observer has failed."""
        await self._wait_until(lambda: self._has_capacity(len(batch)))
        self._enqueue(lambda: self._batches.on_next(batch), len(batch))
        await self._wait_until(lambda: self.waiting_records <= self._buffer)

    async def watermark(self, watermark: int) -> None:
        """Queue the watermark behind the records that precede it."""
        await self._wait_until(lambda: self._has_capacity(0))
        self._enqueue(lambda: self._watermarks.on_next(watermark), 0)

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Return when the observers have finished all batches. Raises: SinkError when one has failed."""
        await self._wait_until(lambda: not self._waiting)

    async def close(self) -> None:
        """Let the observers finish, call `on_completed`, and end the thread."""
        if self._thread is None:
            return
        if self._failure is None:
            self._enqueue(self._complete, 0)
        while self._waiting:
            await asyncio.wait(self._waiting)
        self._thread.shutdown(wait=False)
        self._thread = None

    def _has_capacity(self, records: int) -> bool:
        fits = self.waiting_records + records <= self._buffer and len(self._waiting) < MAX_QUEUED_EVENTS
        return fits or not self._waiting

    async def _wait_until(self, is_enough: Callable[[], bool]) -> None:
        self._raise_failure()
        while not is_enough():
            # the oldest ends first, since there is one thread; asyncio.wait does not cancel it when this task is cancelled
            await asyncio.wait([next(iter(self._waiting))])
            self._raise_failure()

    def _enqueue(self, deliver: Callable[[], None], records: int) -> None:
        if self._thread is None:
            raise SinkError("the reactive sink is not open")
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._deliver, deliver)
        self._waiting[future] = records
        future.add_done_callback(self._waiting.pop)

    def _deliver(self, deliver: Callable[[], None]) -> None:
        """In the thread: deliver unless an observer has failed; keep a failure and pass it to the other observers."""
        if self._failure is not None:
            return
        try:
            deliver()
        except Exception as error:
            self._failure = error
            _notify_error(self._batches, error)
            _notify_error(self._watermarks, error)

    def _complete(self) -> None:
        self._batches.on_completed()
        self._watermarks.on_completed()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SinkError(f"an observer failed: {type(self._failure).__name__}: {self._failure}") from self._failure


def _notify_error(subject: Subject[Any], error: Exception) -> None:
    """Pass the error to each observer. One without `on_error` raises it (reactivex's default); the others must still get it."""
    for observer in [*subject.observers, subject]:
        with contextlib.suppress(Exception):
            observer.on_error(error)
