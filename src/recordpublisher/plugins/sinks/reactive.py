"""A sink that passes records to the observers of a reactivex Observable, with the back-pressure that reactivex itself lacks."""

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
from recordpublisher.publishers.records import Record, RecordBatch, to_millis
from recordpublisher.publishers.safe_text import counted

MAX_QUEUED_EVENTS = 1_000
"""Most batches and watermarks that may wait. Watermarks have no records, so a limit in records alone would not bound the queue."""


class ReactiveSink(Sink):
    """Passes batches to observers, one batch at a time, in a thread of its own.

    - An observer acknowledges a batch by returning from `on_next`. Stored positions cover only the batches that the observers have
      finished.
    - `write` returns when at most `buffer` records wait, and `flush` when no record waits. With a `buffer` of 0 `write` returns when the
      observers have finished its batch.
    - If an observer raises an error, the sink fails: the other observers get `on_error`, and the next `write` or `flush` raises SinkError.
    - `close` calls `on_completed`.

    Observers run in the sink's thread and may block. An observer gets only the batches that are written after its subscription.
    """

    traces_writes = False

    def __init__(self, properties: Mapping[str, object] | None = None, *, buffer: int = 10_000) -> None:
        self._buffer = buffer
        self._batches: Subject[RecordBatch] = Subject()
        self._watermarks: Subject[int] = Subject()
        self._context = SinkContext()
        self._sources: dict[str, SourceShard] = {}
        self._waiting: dict[asyncio.Task[None], RecordBatch | None] = {}
        """The batch of each delivery that has not ended, in order; None for a watermark."""
        self._waiting_records = 0
        self._turn = asyncio.Lock()
        """Held by the batch or watermark that is delivered next. The others wait for it in their order."""
        self._delivering: object = None
        self._queued = 0
        self._states = WrittenStates(lambda queued: queued <= self._queued - len(self._waiting))
        self._failure: BaseException | None = None
        self._is_closing = False
        self._thread: ThreadPoolExecutor | None = None

    @property
    def batches(self) -> Observable[RecordBatch]:
        """An Observable of every batch written."""
        return self._batches

    @property
    def watermarks(self) -> Observable[int]:
        """An Observable of every watermark (epoch ms), in order with the batches."""
        return self._watermarks

    @property
    def records(self) -> Observable[Record]:
        """An Observable of every record written, one by one."""

        def subscribe(observer: ObserverBase[Record], scheduler: SchedulerBase | None = None) -> DisposableBase:
            def each(batch: RecordBatch) -> None:
                for record in batch:
                    observer.on_next(record)

            return self._batches.subscribe(each, observer.on_error, observer.on_completed)

        return Observable(subscribe)

    @property
    def waiting_records(self) -> int:
        """Number of records written that the observers have not finished."""
        return self._waiting_records

    async def open(self, context: SinkContext) -> State | None:
        """Start the thread of the observers. Raises: SinkError if the sink was closed, because its observers were completed then."""
        if self._is_closing:
            raise SinkError(
                "the reactive sink was closed, and its observers were completed: make another ReactiveSink for another job"
            )
        self._context = context
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-observers")
        return None

    def has_room(self) -> bool:
        """Return whether fewer than `buffer` records wait. Also True if nothing waits, or if an observer has failed."""
        if not self._waiting or self._failure is not None:
            return True
        return self._waiting_records < self._buffer and len(self._waiting) < MAX_QUEUED_EVENTS

    async def write(self, batch: RecordBatch) -> None:
        """Queue the batch when there is room. Return when at most `buffer` records wait, or at once while the job may not write.

        Raises: SinkError if an observer has failed.
        """
        source = self._sources.setdefault(batch.shard.key, SourceShard())
        await self._wait_until(self.has_room)
        self._enqueue(lambda: self._batches.on_next(batch), batch, source)
        # While the job may not write, no record is delivered, so a write that waits would hold up the stop of the job.
        await self._wait_until(lambda: self._waiting_records <= self._buffer or not self._context.may_write())

    async def watermark(self, watermark: int) -> None:
        """Queue the watermark after the records that precede it. Drop it if the queue is full while the job may not write.

        Raises: SinkError if an observer has failed.
        """
        await self._wait_until(lambda: len(self._waiting) < MAX_QUEUED_EVENTS or not self._context.may_write())
        if len(self._waiting) < MAX_QUEUED_EVENTS:  # Otherwise drop it: a later watermark covers it.
            self._enqueue(lambda: self._watermarks.on_next(watermark))

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when the observers have finished all batches. For a checkpoint return the newest state whose batches are finished.

        A checkpoint that may be partial waits for one second at most. Raises: SinkError if an observer has failed.
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
        """Return how many records the observers have not finished, and the delivery that is in progress."""
        count, call = self._waiting_records, self._delivering
        shards: dict[str, UnfinishedShard] = {}
        for batch in self._waiting.values():
            if batch is not None and len(batch):
                before = shards.get(batch.shard.key, UnfinishedShard(0, to_millis(batch.records[0].arrival)))
                shards[batch.shard.key] = UnfinishedShard(before.records + len(batch), before.oldest_ms)
        reason = f"observers have not finished {counted(count, 'record')}"
        return Unfinished(count, reason, call, int(call is not None), shards)

    def revoked(self, shards: Collection[str]) -> None:
        """Deliver no more batches of these shards. An observer may finish the batch that it already has."""
        for key in self._sources.keys() & shards:
            self._sources.pop(key).is_revoked = True
        self._states.revoke(shards)

    async def close(self) -> None:
        """Let the observers finish, call `on_completed`, and end the thread. Drop batches that may not be delivered now.

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
            # The oldest delivery ends first. If this task is cancelled, asyncio.wait does not cancel the delivery. The timeout is needed
            # because the permission to write ends without a notification.
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
        """Call `deliver` in the sink's thread, after everything that was queued before. A batch waits while the job may not write."""
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
        """Call `deliver`, unless an observer has failed. Pass the first failure to the other observers. Runs in the sink's thread."""
        if self._failure is not None:
            return
        try:
            deliver()
        except BaseException as error:  # A CancelledError or SystemExit counts, because the records are not handled.
            self._failure = error
            _notify_error(self._batches, error)
            _notify_error(self._watermarks, error)

    def _complete(self) -> None:
        self._batches.on_completed()
        self._watermarks.on_completed()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SinkError(
                f"an observer that subscribed to the sink raised {type(self._failure).__name__}: {self._failure}"
            ) from self._failure


def _notify_error(subject: Subject[Any], error: BaseException) -> None:
    """Pass the error to each observer.

    An observer without `on_error` raises the error (reactivex's default). Such an error is suppressed, so that each observer is called.
    """
    for observer in [*subject.observers, subject]:
        with contextlib.suppress(BaseException):
            observer.on_error(error)  # type: ignore[arg-type]
