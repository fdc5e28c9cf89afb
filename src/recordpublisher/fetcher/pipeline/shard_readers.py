"""ShardReaders: one task for each shard that is read, started parents first (S2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from ..shards.shard_table import ShardEntry, ShardStage, ShardTable
from .shard_queues import ShardQueues


class ShardReaders:
    """Owns the reading tasks of a run."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        table: ShardTable,
        intake: ShardQueues,
        decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator],
        use_continuations: bool,
        last_watermark: Callable[[str], int | None],
    ) -> None:
        self._factory = factory
        self._table = table
        self._intake = intake
        self._stamping_of = decorator_for
        self._use_continuations = use_continuations
        self._last_watermark = last_watermark
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(
        self, changed: Callable[[ShardEntry], None], failed: Callable[[ShardEntry, BaseException], None]
    ) -> list[ShardEntry]:
        """Read every shard that may be read now and is not yet; answers those."""
        begun = []
        for entry in self._table.startable():
            self._inherit_watermark(entry)
            entry.stage = ShardStage.READING
        for entry in self._table:
            if entry.stage is ShardStage.READING and not entry.rests and entry.key not in self._tasks:
                self._begin(entry, failed)
                changed(entry)
                begun.append(entry)
        self._intake.readers = max(len(self._tasks), 1)
        return begun

    def rest(self, entry: ShardEntry) -> None:
        """Read no more of a shard in this run; what is queued stays."""
        if entry.stage is ShardStage.READING and not entry.rests:
            entry.rests = True
            if entry.key in self._tasks:  # else its reader has failed
                self._tasks[entry.key].cancel()

    async def stop(self) -> None:
        """Cancel every reader and forget what was read but not emitted."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        for entry in self._table:
            self._intake.forget(entry)
            if entry.stage is ShardStage.DRAINING:
                entry.stage = ShardStage.READING
            entry.rests = False
            entry.silence.interrupted()

    def _begin(self, entry: ShardEntry, failed: Callable[[ShardEntry, BaseException], None]) -> None:
        entry.at_tip = entry.seen_tip = False
        entry.tip_seen_ms = None
        task = asyncio.create_task(self._read(entry), name=f"read {entry.key}")
        self._tasks[entry.key] = task

        def done(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(entry.key) is ended:
                del self._tasks[entry.key]
            error = None if ended.cancelled() else ended.exception()
            if error is not None:
                failed(entry, error)

        task.add_done_callback(done)

    async def _read(self, entry: ShardEntry) -> None:
        position = entry.state.starting_position(self._use_continuations)
        publisher = await self._factory.create(entry.shard, position, entry.metrics)
        stamping = self._stamping_of(entry.shard, entry.metrics)
        if entry.state.watermark is not None:
            stamping.strategy.start_at(entry.state.watermark)
        result = await ShardConsumer(publisher, stamping, self._intake.output_of(entry)).run()
        if result is RunResult.CANCELLED:
            raise asyncio.CancelledError

    def _inherit_watermark(self, entry: ShardEntry) -> None:
        """A child counts from the moment it may start, at the lowest watermark of its parents (W5)."""
        inherited = self._table.inherited_watermark(entry.shard, self._last_watermark)
        if entry.state.watermark is None and inherited is not None:
            entry.state = replace(entry.state, watermark=inherited)


def is_deleted_stream(error: BaseException) -> bool:
    """Whether a reader ended because its stream was deleted (S8)."""
    return isinstance(error, StreamNotFoundError)
