"""SubtaskFetcher: reads the shards of one subtask in parallel, emits their records in order, and keeps exact state."""

from __future__ import annotations

import asyncio
from typing import Any

from recordpublisher.publishers.positions import StartingPosition

from .checkpoints.checkpoint_scheduler import CheckpointScheduler
from .coordination.watermark_tracker import SubtaskReport, SubtaskStatus
from .dependencies import FetcherDependencies
from .leases.lease_counts import LeaseCounts
from .metric_types import SinkMetric
from .monitoring.alarm_monitor import AlarmMonitor
from .monitoring.metric_collection import collect_metrics
from .monitoring.metric_views import SubtaskView
from .monitoring.progress import SubtaskProgress, progress_of
from .monitoring.readiness import reasons_not_ready
from .monitoring.retention_periods import RetentionPeriods
from .monitoring.status_log import StatusLogger
from .pipeline.bounds import BoundedResult, Bounds, EndReason, shard_outcome
from .pipeline.lease_gate import CurrentWorker
from .pipeline.termination import RunCompletion, TerminationCondition
from .shard_lifecycle import ShardLifecycle
from .shards.shard_entry import ShardStage
from .snapshotter import Snapshotter
from .startup import close_dependencies, open_job
from .stream_changes import StreamChanges

READY_CHECK_SECONDS = 0.02


class SubtaskFetcher:
    """One subtask of a job. Owns the runs, and the background tasks of each run.

    What happens to a shard is decided in `shard_lifecycle.py`.
    """

    def __init__(self, dependencies: FetcherDependencies, current: CurrentWorker | None = None) -> None:
        """`current`: the worker of this process (ELASTIC)."""
        self._dependencies = dependencies
        self._has_leases = current is not None
        self._completion = RunCompletion()
        self._checkpoint_scheduler = CheckpointScheduler(
            dependencies.settings.checkpoint_interval_ms, self._take_periodic_checkpoint
        )
        self._shards = shards = ShardLifecycle(
            dependencies, self._completion, self._checkpoint_scheduler.request, current
        )
        self._table = shards.table
        self._snapshotter = Snapshotter(dependencies, shards.table, shards.owned, shards.emitter, shards.bad_records)
        self._streams = StreamChanges(dependencies, shards)
        leases = LeaseCounts()
        self._alarm_monitor = AlarmMonitor(dependencies, shards.table, shards.alignment, shards.emitter, leases)
        self._retention = RetentionPeriods(dependencies.retention_ms, dependencies.streams, dependencies.subtask)
        self._view = SubtaskView(
            shards.table,
            dependencies.tracker,
            shards.alignment,
            shards.emitter,
            shards.intake,
            self._alarm_monitor,
            self._retention,
            shards.suspension,
            self._snapshotter.times,
            leases,
        )
        self._stopped = False
        self._past_event_time: dict[str, int | None] = {}
        """The next watermark of each shard that ended the last run past the event-time bound."""

    async def open(self) -> None:
        """Open the sink, restore, list shards, and store the state before the first read, in the store (P3) and in the sink (S6).

        Raises: StateError, DataLossError, StreamNotFoundError, KinesisError.
        """
        dependencies, shards = self._dependencies, self._shards
        context = await shards.bad_records.open(
            dependencies.sink_context(self._checkpoint_scheduler.request, shards.emitter.wake)
        )
        opened = await open_job(dependencies, context, shards.retention, shards.missing)
        shards.gaps.pin(opened.pinned_ms)
        self._snapshotter.resume_from(opened)
        shards.owned.add_initial(opened.listed, opened.states, opened.unlisted_states)
        self._streams.start_with(opened.start)
        await dependencies.tracker.open(dependencies.subtask, dependencies.parallelism)
        dependencies.tracker.start_at(opened.lowest_watermark)
        dependencies.tracker.on_advance(shards.emitter.wake)
        self._open_monitoring(opened.start)
        await self.checkpoint()

    async def run(self) -> BoundedResult:
        """Run until stop(), an error, or the deletion of every stream (S8)."""
        return await self.run_bounded(Bounds())

    async def run_bounded(self, bounds: Bounds) -> BoundedResult:
        """Run until a bound is reached. Can be called again: the next run resumes where the last one ended."""
        run = TerminationCondition(bounds, has_leases=self._has_leases)
        self._start_run(run)
        emitted_before = {entry.key: (entry.emission.records, entry.emission.payload_bytes) for entry in self._table}
        start_task, dependencies = self._completion.start_task, self._dependencies
        emitting = start_task(self._shards.emitter.run(self._completion.complete))
        checkpointing = start_task(self._checkpoint_scheduler.run())
        others = [
            start_task(self._heartbeat()),
            start_task(self._shards.suspension.run()),
            start_task(self._discover()),
            start_task(dependencies.streams.run(self._on_look)),
            start_task(self._completion.complete_after(bounds.max_time)),
            start_task(self._alarm_monitor.run()),
            start_task(self._retention.run()),
        ]
        try:
            self._shards.start_readers()
            reason = await self._completion.wait()
            if reason is EndReason.STOPPED:
                await self._before_stop()
        finally:
            await self._end_run(run, emitting, checkpointing, others)
        await self._take_last_checkpoint()
        outcomes = {
            entry.key: shard_outcome(entry, emitted_before.get(entry.key, (0, 0)), self._past_event_time)
            for entry in self._table
        }
        return BoundedResult(reason, outcomes, run.records)

    def stop(self) -> None:
        """End the run after the current write. May be called from anywhere in the event loop's thread."""
        self._stopped = True
        self._completion.complete(EndReason.STOPPED)

    def snapshot(self) -> dict[str, Any]:
        """The state of exactly the records for which the sink's `write` has returned (S1), as a plain JSON-able dict."""
        return self._snapshotter.snapshot()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, then store a snapshot: only of what the sink has confirmed (S6). Raises: FencedError, SinkError."""
        return await self._snapshotter.checkpoint()

    async def close(self) -> None:
        """Close publishers, tracker and sink. Each is closed even if closing another one fails."""
        dependencies = self._dependencies
        dependencies.tracker.report(SubtaskReport(dependencies.subtask, SubtaskStatus.LEFT))
        await close_dependencies(dependencies, self._shards.bad_records.close())

    def metrics(self) -> dict[str, Any]:
        """Metrics as a plain dict: `subtask` and `shards` by `stream/shard-id` (A1)."""
        return collect_metrics(self._view, self._dependencies.clock)

    def retention_ms(self, stream: str) -> int | None:
        """How long the stream keeps its records; None while that is not known."""
        return self._retention.of(stream)

    def progress(self) -> SubtaskProgress:
        """What a progress line shows, which costs far less than all metrics."""
        dependencies = self._dependencies
        return progress_of(dependencies.subtask, self._view, dependencies.clock.now_ms())

    def sink_metrics(self) -> list[SinkMetric]:
        """What the sink has to export."""
        return self._dependencies.sink.exported_metrics()

    def reasons_not_ready(self) -> list[str]:
        """Why the subtask is not ready, in plain words; empty while it reads and its checkpoints are stored. Needs no call."""
        now_ms = self._dependencies.clock.now_ms()
        return reasons_not_ready(self._completion, self._table, self._snapshotter.times, now_ms)

    async def wait_ready(self) -> None:
        """Wait until the run has read each of its open shards once, or has ended. Raises: the error that ended it."""
        while not self._completion.has_ended and not self._has_read_every_shard():  # noqa: ASYNC110 - no event for each read
            await asyncio.sleep(READY_CHECK_SECONDS)
        if self._completion.error is not None:
            raise self._completion.error

    def _has_read_every_shard(self) -> bool:
        reading = (entry for entry in self._table if entry.stage is ShardStage.READING)
        return self._completion.is_running and all(entry.reading.last_read_ms is not None for entry in reading)

    # --- a run ------------------------------------------------------------------------------------------------------------------

    def _open_monitoring(self, start: StartingPosition) -> None:
        dependencies, shards = self._dependencies, self._shards
        self._alarm_monitor.start_at(start)
        self._status_logger = StatusLogger(
            dependencies.subtask,
            shards.table,
            shards.alignment,
            shards.emitter.local_watermark,
            dependencies.tracker,
            dependencies.clock,
        )

    async def _take_periodic_checkpoint(self) -> None:
        await self._snapshotter.checkpoint(may_be_partial=True)

    async def _before_stop(self) -> None:
        """After `stop`, while records are still read and written."""

    async def _take_last_checkpoint(self) -> None:
        await self.checkpoint()

    def _start_run(self, run: TerminationCondition) -> None:
        self._completion.start()
        self._shards.start_run(run)
        self._checkpoint_scheduler.start()
        if self._stopped:
            self._completion.complete(EndReason.STOPPED)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._dependencies.settings.sync_interval_ms / 1000)
            self._shards.on_heartbeat()
            self._status_logger.check()
            self._shards.start_readers()
            self._shards.intake.retry_pending_reads()

    async def _discover(self) -> None:
        await self._dependencies.discovery.run(self._shards.on_listing)
        self._shards.complete_without_streams()

    async def _on_look(self) -> None:
        await self._streams.apply()
        await self._retention.request_missing()

    async def _end_run(
        self,
        run: TerminationCondition,
        emitting: asyncio.Task[None],
        checkpointing: asyncio.Task[None],
        others: list[asyncio.Task[None]],
    ) -> None:
        """Stop all tasks, then drop what was read but not emitted.

        The emitter and the checkpoints are stopped and awaited, never cancelled: a write or a checkpoint must not be cut off.
        """
        self._shards.emitter.stop()
        self._checkpoint_scheduler.stop()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.shield(asyncio.gather(emitting, checkpointing, return_exceptions=True))
        # It depends on the queues, which are dropped next.
        past = filter(run.is_past_event_time, self._table)
        self._past_event_time = {entry.key: entry.next_watermark for entry in past}
        await self._shards.end_run()
