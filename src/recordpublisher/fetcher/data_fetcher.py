"""DataFetcher: many shards of a subtask, read in parallel, emitted in order, with exact state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from recordpublisher.consumer.bad_records import OnPoison
from recordpublisher.publishers.shards import Shard

from .checkpoints.store import CheckpointScheduler
from .coordination.watermark_tracker import SubtaskReport, SubtaskStatus
from .dependencies import FetcherDependencies
from .monitoring.metric_views import SubtaskView
from .monitoring.metrics import metrics_of
from .monitoring.monitor import Monitor
from .monitoring.status_log import StatusLogger
from .pipeline.bounds import BoundedResult, Bounds, EndReason, outcome_of
from .pipeline.dead_letters import BadRecordHandler
from .pipeline.emitter import Emitter
from .pipeline.memory_budget import MemoryBudget
from .pipeline.shard_queues import ShardQueues
from .pipeline.shard_readers import ShardReaders, is_deleted_stream
from .pipeline.suspension import SuspensionDetector
from .pipeline.termination import RunCompletion, TerminationCondition
from .shards.owned_shards import OwnedShards
from .shards.shard_table import ShardEntry, ShardTable
from .snapshotter import Snapshotter
from .startup import close_dependencies, open_job
from .watermarks.alignment import Alignment
from .watermarks.reshard_handover import ReshardHandover
from .watermarks.stragglers import StragglerDetector

log = logging.getLogger("recordpublisher.fetcher")


class DataFetcher:
    """Reads the shards of one subtask. Owns their table and the life of everything that runs."""

    def __init__(self, parts: FetcherDependencies) -> None:
        self._parts = parts
        settings, clock = parts.settings, parts.clock
        self._table = ShardTable(parts.tracker.is_finished)
        self._pulse = SuspensionDetector(clock, self._woke_up)
        self._alignment = Alignment(
            parts.tracker, parts.subtask, settings.lookahead_ms, settings.startup_timeout_ms, clock
        )
        self._intake = ShardQueues(
            MemoryBudget(settings.budget),
            settings.idle_interval_ms,
            clock,
            self._pulse,
            self._changed,
            self._found_children,
        )
        self._rejections = BadRecordHandler(self._table, settings.on_poison is OnPoison.SKIP, parts.dead_letters)
        self._emitter = Emitter(
            parts.sink,
            self._alignment,
            self._intake,
            clock,
            self._pulse,
            settings.emit_interval_ms,
            self._shard_ended,
            self._rejections.poisoned,
        )
        self._readers = ShardReaders(
            parts.factory,
            self._table,
            self._intake,
            parts.decorator_for,
            parts.use_continuations,
            parts.tracker.final_watermark,
        )
        self._succession = ReshardHandover(
            self._table, parts.tracker, settings.tracker_timeout_ms, clock, self._note, self._alignment.report
        )
        self._laggards = StragglerDetector(self._table, parts.tracker, settings.max_lag_ms, self._note)
        self._roster = OwnedShards(
            self._table, parts.discovery, parts.is_ours, clock, self._changed_quietly, self._forgotten
        )
        self._keeper = CheckpointScheduler(settings.checkpoint_interval_ms, self.checkpoint)
        self._monitor = Monitor(parts, self._table, self._alignment, self._emitter)
        self._view = SubtaskView(
            self._table, parts.tracker, self._alignment, self._emitter, self._intake, self._monitor, self._pulse
        )
        self._snapshots = Snapshotter(parts, self._table, self._emitter, self._rejections)
        self._finish_line = TerminationCondition(Bounds())
        self._ending = RunCompletion()
        self._stopped = False
        self._last_heads: dict[str, int | None] = {}

    async def open(self) -> None:
        """Open the sink, restore, look for shards, pin a LATEST start and store it before the first read (P3), also in the sink (S6).

        Raises: StateError, DataLossError, StreamNotFoundError, KinesisError.
        """
        parts = self._parts
        opened = await open_job(parts, await self._rejections.open(parts.sink_context(self._keeper.ask_for_one)))
        self._snapshots.goes_on_from(opened)
        self._roster.open(opened.listed, opened.states)
        await parts.tracker.open(parts.subtask, parts.parallelism)
        parts.tracker.start_at(opened.lowest_watermark)
        parts.tracker.on_advance(self._emitter.wake)
        self._alignment.begin()
        self._monitor.sightings.start = opened.start
        self._watch = StatusLogger(
            parts.subtask, self._table, self._alignment, self._emitter.local_watermark, parts.tracker, parts.clock
        )
        await self.checkpoint()

    async def run(self) -> BoundedResult:
        """Run until stop(), an error, or the deletion of every stream (S8)."""
        return await self.run_bounded(Bounds())

    async def run_bounded(self, bounds: Bounds) -> BoundedResult:
        """Run until a bound is met; can be called again and goes on where the last run ended."""
        self._begin(bounds)
        before = {entry.key: (entry.records, entry.payload_bytes) for entry in self._table}
        tasks = [
            self._ending.background(work)
            for work in (
                self._emit(),
                self._keeper.run(),
                self._heartbeat(),
                self._pulse.run(),
                self._discover(),
                self._ending.finish_in(bounds.max_time),
                self._monitor.run(),
                self._monitor.retention.run(),
            )
        ]
        try:
            self._start_readers()
            reason = await self._ending.reached()
        finally:
            await self._wind_down(tasks)
        await self.checkpoint()
        outcomes = {
            entry.key: outcome_of(entry, before.get(entry.key, (0, 0)), self._last_heads) for entry in self._table
        }
        return BoundedResult(reason, outcomes, self._finish_line.records)

    def stop(self) -> None:
        """End the run after the write that is going on; safe from any place of the loop's thread."""
        self._stopped = True
        self._ending.finish(EndReason.STOPPED)

    def snapshot(self) -> dict[str, Any]:
        """Exactly what `write` has returned for (S1), as a plain JSON-able dict."""
        return self._snapshots.take()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush, snapshot, store: kept only after the sink confirmed everything before it (S6). Raises: FencedError, SinkError."""
        return await self._snapshots.keep()

    async def close(self) -> None:
        """Close publishers, tracker and sink; every one of them, whatever the others do."""
        parts = self._parts
        parts.tracker.report(SubtaskReport(parts.subtask, SubtaskStatus.LEFT))
        await close_dependencies(parts, self._rejections.close())

    def metrics(self) -> dict[str, Any]:
        """Metrics as a plain dict: `subtask` and `shards` by `stream/shard-id` (A1)."""
        return metrics_of(self._view, self._parts.clock)

    # --- what happens while it runs ---------------------------------------------------------------------------------------------

    def _begin(self, bounds: Bounds) -> None:
        self._ending.begin()
        self._finish_line = TerminationCondition(bounds)
        self._alignment.until = bounds.until_event_time
        self._emitter.begin()
        self._keeper.begin()
        self._pulse.begin()
        if self._stopped:
            self._ending.finish(EndReason.STOPPED)

    def _changed(self, entry: ShardEntry) -> None:
        self._note(entry)
        if not entry.queue and not entry.is_open:
            self._shard_ended(entry)

    def _note(self, entry: ShardEntry) -> None:
        """What a shard counts for has changed."""
        self._emitter.note(entry, self._finish_line)
        if not self._finish_line.reads_on(entry):
            self._readers.rest(entry)
        self._emitter.wake()

    def _changed_quietly(self, entry: ShardEntry) -> None:
        self._alignment.changed(entry)
        self._emitter.local_watermark.changed(entry)

    def _forgotten(self, key: str) -> None:
        self._emitter.forget(key, self._finish_line)

    def _shard_ended(self, entry: ShardEntry) -> None:
        """A shard's last record was emitted: its children may start, elsewhere once a checkpoint says so (S2)."""
        if self._roster.is_deleted(entry):
            self._roster.forget(entry.key)
            return
        log.info("shard %s was read to its end, children: %s", entry.key, [child.shard_id for child in entry.children])
        self._keeper.ask_for_one()
        self._succession.ended(entry)
        self._start_readers()

    def _found_children(self, children: Sequence[Shard]) -> None:
        """ChildShards of an end-of-shard answer are used at once (S3)."""
        self._roster.take(children)

    def _start_readers(self) -> None:
        if not self._ending.is_running:
            return
        begun = self._readers.start(self._changed, self._reader_failed)
        self._succession.look()
        self._succession.begun(begun)
        is_bounded = self._finish_line.has_shard_bounds and not any(entry.is_open for entry in self._table)
        if is_bounded or self._table.is_exhausted:
            self._ending.finish(EndReason.ALL_ENDED)

    def _woke_up(self, gap_seconds: float) -> None:
        """The process was suspended or starved: read and ask for the global watermark before judging (W3, W7)."""
        log.warning("subtask %d did not run for %.1f s", self._parts.subtask, gap_seconds)
        for entry in self._table:
            entry.silence.slept()
            if entry.idle:
                entry.idle = False
                self._note(entry)
        self._alignment.report()

    def _reader_failed(self, entry: ShardEntry, error: BaseException) -> None:
        if not is_deleted_stream(error):
            self._ending.fail(error)
            return
        self._roster.stream_was_deleted(entry)
        self._end_without_streams()

    def _end_without_streams(self) -> None:
        if self._parts.discovery.all_deleted:
            self._ending.finish(EndReason.STREAMS_DELETED)

    async def _emit(self) -> None:
        await self._emitter.run(self._finish_line, self._reached_the_line)

    def _reached_the_line(self) -> None:
        reason = self._finish_line.reason()
        if reason is not None:
            self._ending.finish(reason)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._parts.settings.sync_interval_ms / 1000)
            self._laggards.look()
            self._alignment.furthest = self._laggards.furthest
            self._emitter.tick()
            self._watch.look()
            self._start_readers()
            self._intake.tick()

    async def _discover(self) -> None:
        async def looked(stream: str, listed: list[Shard]) -> None:
            self._roster.look(stream, listed)
            self._succession.listed(stream, listed)
            self._start_readers()

        await self._parts.discovery.run(looked)
        self._end_without_streams()

    async def _wind_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """Stop reading, let a write or checkpoint that is going on return, forget what was not emitted."""
        emitter, keeper, *others = tasks
        self._emitter.stop()
        self._keeper.stop()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.shield(asyncio.gather(emitter, keeper, return_exceptions=True))
        self._last_heads = {
            entry.key: entry.next_watermark for entry in self._table if self._finish_line.is_past_event_time(entry)
        }
        for entry in self._table:
            entry.at_tip = entry.at_tip and not entry.queue
        await self._readers.stop()
        for entry in self._table:
            self._changed_quietly(entry)
