"""ReactiveSink: records as a reactivex Observable, with the back-pressure that reactivex itself lacks."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.subject import Subject

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State, Unfinished, UnfinishedShard
from recordpublisher.plugins.sinks.queued_writes import (
    PARTIAL_FLUSH_SECONDS,
    PERMISSION_SECONDS,
    SourceShard,
    WrittenStates,
)
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.property_types import integer
from recordpublisher.publishers.records import Record, RecordBatch, to_millis

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

    An observer acknowledges by returning from `on_next`. `write` returns when at most `buffer` records wait, `flush` when none waits.
    Stored positions cover only what the observers have finished. An observer that raises fails the sink: the others get `on_error`, the
    next `write` or `flush` raises SinkError. `close` calls `on_completed`.

    Observers run in the sink's thread and may block. An observer gets only what is written after its subscription.
    """

    traces_writes = False

    def __init__(self, properties: Mapping[str, object] | None = None, *, buffer: int | None = None) -> None:
        self._buffer = buffer if buffer is not None else Properties(properties).value(BUFFER)
        self._batches: Subject[RecordBatch] = Subject()
        self._watermarks: Subject[int] = Subject()
        self._context = SinkContext()
        self._sources: dict[str, SourceShard] = {}
        self._waiting: dict[asyncio.Task[None], RecordBatch | None] = {}
        """The batch of each delivery that has not ended, in order; None for a watermark."""
        self._waiting_records = 0
        self._turn = asyncio.Lock()
        """Held by the batch or watermark that is delivered next: the others wait for it in their order."""
        self._delivering: object = None
        self._queued = 0
        self._states = WrittenStates(lambda queued: queued <= self._queued - len(self._waiting))
        self._failure: BaseException | None = None
        self._is_closing = False
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
        return self._waiting_records

    async def open(self, context: SinkContext) -> State | None:
        """Start the thread of the observers."""
        self._context = context
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-observers")
        return None

    def has_room(self) -> bool:
        """Return whether fewer than `buffer` records wait, or nothing, or an observer has failed."""
        if not self._waiting or self._failure is not None:
            return True
        return self._waiting_records < self._buffer and len(self._waiting) < MAX_QUEUED_EVENTS

    async def write(self, batch: RecordBatch) -> None:
        """Queue the batch and return when at most `buffer` records wait, or while the job may not write.

        Raises: SinkError if an observer has failed.
        """
        source = self._sources.setdefault(batch.shard.key, SourceShard())
        await self._wait_until(self.has_room)
        self._enqueue(lambda: self._batches.on_next(batch), batch, source)
        # While the job may not write, nothing becomes less, and a write that waits would hold up the stop of the job.
        await self._wait_until(lambda: self._waiting_records <= self._buffer or not self._context.may_write())

    async def watermark(self, watermark: int) -> None:
        """Queue the watermark behind the records that precede it."""
        await self._wait_until(lambda: len(self._waiting) < MAX_QUEUED_EVENTS or not self._context.may_write())
        if len(self._waiting) < MAX_QUEUED_EVENTS:  # otherwise a later watermark stands for this one
            self._enqueue(lambda: self._watermarks.on_next(watermark))

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when the observers have finished all batches. Raises: SinkError if one has failed.

        A checkpoint that may be partial waits for a second at most, and gets the newest state whose batches are finished.
        """
        queued = self._queued
        if checkpoint is None:
            await self._wait_until(lambda: not self._waiting)
            return None
        self._states.add(queued, checkpoint.state)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PARTIAL_FLUSH_SECONDS if checkpoint.may_be_partial else None):
                await self._wait_until(lambda: queued <= self._queued - len(self._waiting))
        self._raise_failure()
        return self._states.newest()

    def unfinished(self) -> Unfinished:
        """Return how many records the observers have not finished, and the call that runs."""
        count, call = self._waiting_records, self._delivering
        shards: dict[str, UnfinishedShard] = {}
        for batch in self._waiting.values():
            if batch is not None and len(batch):
                before = shards.get(batch.shard.key, UnfinishedShard(0, to_millis(batch.records[0].arrival)))
                shards[batch.shard.key] = UnfinishedShard(before.records + len(batch), before.oldest_ms)
        reason = f"records that the observers have not finished: {count}"
        return Unfinished(count, reason, call, int(call is not None), shards)

    def revoked(self, shards: Collection[str]) -> None:
        """Deliver no more batches of these shards. A batch that an observer has may be finished."""
        for key in self._sources.keys() & shards:
            self._sources.pop(key).is_revoked = True
        self._states.revoke(shards)

    async def close(self) -> None:
        """Let the observers finish, call `on_completed`, and end the thread. Drop what may not be delivered now.

        Raises: SinkError if an observer has failed in the meantime.
        """
        if self._thread is None:
            return
        self._is_closing, has_failed = True, self._failure is not None
        if not has_failed:
            self._enqueue(self._complete)
        while self._waiting:
            await asyncio.wait(self._waiting)
        self._thread.shutdown(wait=False)
        self._thread = None
        if not has_failed:
            self._raise_failure()

    async def _wait_until(self, is_enough: Callable[[], bool]) -> None:
        self._raise_failure()
        while not is_enough():
            # The oldest ends first. asyncio.wait does not cancel it when this task is cancelled. The permission ends without a notice.
            await asyncio.wait([next(iter(self._waiting))], timeout=PERMISSION_SECONDS)
            self._raise_failure()

    def _enqueue(
        self, deliver: Callable[[], None], batch: RecordBatch | None = None, source: SourceShard | None = None
    ) -> None:
        if self._thread is None:
            raise SinkError("the reactive sink is not open")
        task = asyncio.create_task(self._deliver_in_turn(self._thread, deliver, source))
        self._waiting[task] = batch
        self._waiting_records += 0 if batch is None else len(batch)
        self._queued += 1
        task.add_done_callback(self._on_delivered)

    def _on_delivered(self, task: asyncio.Task[None]) -> None:
        batch = self._waiting.pop(task)
        self._waiting_records -= 0 if batch is None else len(batch)
        if self.has_room():
            self._context.resume_writing()

    async def _deliver_in_turn(
        self, thread: ThreadPoolExecutor, deliver: Callable[[], None], source: SourceShard | None
    ) -> None:
        """Deliver in the thread, after everything that was queued before. Wait while the job may not write (E4)."""
        async with self._turn:
            if source is not None:
                while not source.is_revoked and not self._context.may_write():
                    if self._is_closing:
                        return
                    await asyncio.sleep(PERMISSION_SECONDS)
                if source.is_revoked:
                    return
            self._delivering = deliver
            try:
                await asyncio.get_running_loop().run_in_executor(thread, self._deliver, deliver)
            finally:
                self._delivering = None

    def _deliver(self, deliver: Callable[[], None]) -> None:
        """In the thread: deliver unless an observer has failed; keep a failure and pass it to the other observers."""
        if self._failure is not None:
            return
        try:
            deliver()
        except BaseException as error:  # also CancelledError and SystemExit: the observer has not had the records
            self._failure = error
            _notify_error(self._batches, error)
            _notify_error(self._watermarks, error)

    def _complete(self) -> None:
        self._batches.on_completed()
        self._watermarks.on_completed()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SinkError(f"an observer failed: {type(self._failure).__name__}: {self._failure}") from self._failure


def _notify_error(subject: Subject[Any], error: BaseException) -> None:
    """Pass the error to each observer. One without `on_error` raises it (reactivex's default); the others must still get it."""
    for observer in [*subject.observers, subject]:
        with contextlib.suppress(BaseException):
            observer.on_error(error)  # type: ignore[arg-type]
