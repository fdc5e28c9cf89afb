"""ReadTasks runs one reading task for each shard. Parents are read before their children (S2)."""

import asyncio
from collections.abc import Callable, Iterable

from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer, name_publisher
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import DataLossError, PluginError
from recordpublisher.publishers.log_fields import key_fields, log_fields
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from .read_intake import ReadIntake
from .retention_gaps import RetentionGaps


class ReadTasks:
    """Owns the reading tasks of a run."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        table: ShardTable,
        intake: ReadIntake,
        decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator],
        use_continuations: bool,
        gaps: RetentionGaps,
        on_failed: Callable[[ShardEntry, BaseException], None],
    ) -> None:
        self._factory = factory
        self._table = table
        self._intake = intake
        self._decorator_for = decorator_for
        self._use_continuations = use_continuations
        self._gaps = gaps
        self._on_failed = on_failed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()
        """Readers of this run that were cancelled. A reader that ends as cancelled without being in this set has failed."""

    def start_ready(self, entries: Iterable[ShardEntry]) -> list[ShardEntry]:
        """Start a reader for each of these shards that may be read and has none. Return those shards.

        A shard that was stopped while it waited starts without a reader. Otherwise its stored position would say that
        it waits.
        """
        started: list[ShardEntry] = []
        for entry in entries:
            if self._table.may_start(entry):
                # A child counts for watermarks from the moment it may start, at the lowest watermark of its parents
                # (W5).
                entry.start_reading(self._table.inherited_watermark(entry.shard))
                started += self._started(entry)
            elif entry.needs_reader and entry.key not in self._tasks:
                entry.start_reading()
                started += self._started(entry)
        self._intake.share_among(len(self._tasks))
        return started

    def finish(self, entry: ShardEntry) -> None:
        """Read no more of a shard in this run. Queued records stay."""
        if entry.needs_reader:
            entry.finish_reading()
            if entry.key in self._tasks:  # otherwise its reader has failed
                self._cancel(self._tasks[entry.key])

    def abandon(self, entry: ShardEntry) -> None:
        """Read no more of a shard, and drop its queue, because another process has the shard, or will have it."""
        task = self._tasks.pop(entry.key, None)
        if task is not None:
            self._abandoned.add(task)
            self._cancel(task)
        entry.abandon()
        self._intake.drop(entry)

    async def wait_for_abandoned(self) -> None:
        """Wait until the readers of abandoned shards have ended."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel every reader."""
        for task in self._tasks.values():
            self._cancel(task)

    async def stop(self) -> None:
        """Cancel every reader, and drop the records that were read but not emitted."""
        self.cancel()
        await asyncio.gather(*self._tasks.values(), *self._abandoned, return_exceptions=True)
        self._tasks.clear()
        for entry in self._table:
            entry.end_run()
            self._intake.drop(entry)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        # Cancel only once, because a second cancellation would cut off the work that the first one began.
        if task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def _started(self, entry: ShardEntry) -> list[ShardEntry]:
        """Start the reader, unless the run needs no more of the shard, or the shard was abandoned."""
        if entry.needs_reader:
            self._start(entry)
        return [] if entry.reading.is_abandoned else [entry]

    def _start(self, entry: ShardEntry) -> None:
        parents = [self._table[key] for key in parent_keys(entry.shard) if key in self._table]
        self._gaps.start(entry, parents)
        with log_fields(**key_fields(entry.key)):
            task = asyncio.create_task(self._read(entry), name=f"read {entry.key}")
        self._tasks[entry.key] = task

        def on_done(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(entry.key) is ended:
                del self._tasks[entry.key]
            was_told, is_abandoned = ended in self._cancelled, ended in self._abandoned
            self._cancelled.discard(ended)
            self._abandoned.discard(ended)
            if is_abandoned:
                return
            error = self._unasked_end(entry) if ended.cancelled() else ended.exception()
            if error is not None and not (ended.cancelled() and was_told):
                self._on_failed(entry, error)

        task.add_done_callback(on_done)

    def _unasked_end(self, entry: ShardEntry) -> PluginError:
        return PluginError(
            f"the publisher of {type(self._factory).__name__} for {entry.key} ended as if it had been stopped, but it was not. "
            "`run` may return CANCELLED, or raise CancelledError, only after its task was cancelled"
        )

    async def _read(self, entry: ShardEntry) -> None:
        try:
            result = await self._read_to_end(entry)
        except Exception as error:
            name_publisher(error, f"the publisher of {type(self._factory).__name__} for {entry.key}")
            raise
        if result is RunResult.CANCELLED:
            raise asyncio.CancelledError

    async def _read_to_end(self, entry: ShardEntry) -> RunResult:
        position = entry.state.starting_position(self._use_continuations)
        while True:
            before = entry.progress.position
            try:
                return await self._read_from(entry, position)
            except DataLossError as error:
                if not self._gaps.accept(entry, error):
                    raise
                if position.type is PositionType.TRIM_HORIZON and entry.progress.position == before:
                    # Not even the oldest record is there, so the whole shard is past retention. Its children, if any,
                    # are listed.
                    self._intake.end(entry, ())
                    return RunResult.COMPLETE
                position = StartingPosition.trim_horizon()

    async def _read_from(self, entry: ShardEntry, position: StartingPosition) -> RunResult:
        publisher = await self._factory.create(entry.shard, position, entry.metrics)
        publisher.set_seen(entry.progress.seen_ms)
        decorator = self._decorator_for(entry.shard, entry.metrics)
        if entry.state.watermark is not None:
            decorator.strategy.start_at(entry.state.watermark)
        consumer = ShardConsumer(
            publisher,
            decorator,
            self._intake.output_for(entry),
            self._factory.order_of,
            entry.state.position,
            entry.shard,
        )
        return await consumer.run()
