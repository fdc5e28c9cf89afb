"""ShardReaders: one reading task for each shard; parents are read before their children (S2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.log_fields import key_fields, log_fields
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_table import ShardTable
from .retention_gaps import RetentionGaps
from .shard_queues import ShardQueues


class ShardReaders:
    """Owns the reading tasks of a run."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        table: ShardTable,
        queues: ShardQueues,
        decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator],
        use_continuations: bool,
        last_watermark: Callable[[str], int | None],
        gaps: RetentionGaps,
    ) -> None:
        self._factory = factory
        self._table = table
        self._queues = queues
        self._decorator_for = decorator_for
        self._use_continuations = use_continuations
        self._last_watermark = last_watermark
        self._gaps = gaps
        self.pinned_ms: int | None = None
        """The time that a LATEST start stands for (P3)."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()

    def start_ready(
        self, on_changed: Callable[[ShardEntry], None], on_failed: Callable[[ShardEntry, BaseException], None]
    ) -> list[ShardEntry]:
        """Start a reader for every shard that may be read and has none. Returns those shards."""
        started = []
        for entry in self._table.ready_to_start():
            self._inherit_watermark(entry)
            entry.stage = ShardStage.READING
        for entry in self._table:
            if entry.stage is ShardStage.READING and not entry.reading_finished and entry.key not in self._tasks:
                self._start(entry, on_failed)
                on_changed(entry)
                started.append(entry)
        self._queues.readers = max(len(self._tasks), 1)
        return started

    def finish_reading(self, entry: ShardEntry) -> None:
        """Read no more of a shard in this run; what is queued stays."""
        if entry.stage is ShardStage.READING and not entry.reading_finished:
            entry.reading_finished = True
            if entry.key in self._tasks:  # otherwise its reader has failed
                self._tasks[entry.key].cancel()

    def abandon(self, entry: ShardEntry) -> None:
        """Read no more of a shard, and drop what is queued: another process has it, or will have it."""
        task = self._tasks.pop(entry.key, None)
        if task is not None:
            self._abandoned.add(task)
            task.cancel()
        self._drop_unread(entry)
        entry.reading_finished = True

    async def wait_for_abandoned(self) -> None:
        """Wait until the readers of abandoned shards have ended."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    async def stop(self) -> None:
        """Cancel every reader, and drop what was read but not emitted."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._abandoned, return_exceptions=True)
        self._tasks.clear()
        for entry in self._table:
            self._drop_unread(entry)
            entry.reading_finished = False
            entry.idleness.on_interruption()

    def _drop_unread(self, entry: ShardEntry) -> None:
        self._queues.drop(entry)
        if entry.stage is ShardStage.DRAINING:
            entry.stage = ShardStage.READING

    def _start(self, entry: ShardEntry, on_failed: Callable[[ShardEntry, BaseException], None]) -> None:
        entry.at_tip = entry.has_seen_tip = False
        entry.tip_seen_ms = None
        parents = [self._table[key] for key in parent_keys(entry.shard) if key in self._table]
        self._gaps.start(entry, parents, self.pinned_ms)
        with log_fields(**key_fields(entry.key)):
            task = asyncio.create_task(self._read(entry), name=f"read {entry.key}")
        self._tasks[entry.key] = task

        def on_done(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(entry.key) is ended:
                del self._tasks[entry.key]
            if ended in self._abandoned:
                self._abandoned.remove(ended)
                return
            error = None if ended.cancelled() else ended.exception()
            if error is not None:
                on_failed(entry, error)

        task.add_done_callback(on_done)

    async def _read(self, entry: ShardEntry) -> None:
        position = entry.state.starting_position(self._use_continuations)
        publisher = await self._factory.create(entry.shard, position, entry.metrics)
        decorator = self._decorator_for(entry.shard, entry.metrics)
        if entry.state.watermark is not None:
            decorator.strategy.start_at(entry.state.watermark)
        result = await ShardConsumer(publisher, decorator, self._queues.output_for(entry)).run()
        if result is RunResult.CANCELLED:
            raise asyncio.CancelledError

    def _inherit_watermark(self, entry: ShardEntry) -> None:
        """A child counts for watermarks from the moment it may start, at the lowest watermark of its parents (W5)."""
        inherited = self._table.inherited_watermark(entry.shard, self._last_watermark)
        if entry.state.watermark is None and inherited is not None:
            entry.state = replace(entry.state, watermark=inherited)


def is_deleted_stream(error: BaseException) -> bool:
    """Whether a reader ended because its stream was deleted (S8)."""
    return isinstance(error, StreamNotFoundError)
