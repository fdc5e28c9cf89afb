"""Reads the shards of one worker in parallel, emits their records in order, and keeps how far each shard was emitted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from ..publishers.errors import DataLossError, FencedError, ImpossibleStateError, RetriesExhaustedError, StateError
from ..publishers.safe_text import with_notes
from ..publishers.shards import Shard
from ..publishers.user_code import GRACE_SECONDS, describe_error, end_or_leave, slow_calls, waiting_line
from .checkpointer import Checkpointer, SnapshotCheckpointer, Snapshotter
from .checkpoints.checkpoint_schedule import CheckpointAge, CheckpointScheduler
from .conditional_store import wait_for_store
from .dependencies import FetcherDependencies
from .leases.group_counters import GroupCounters
from .metric_types import SinkMetric
from .monitoring.alarm_monitor import AlarmMonitor, RetentionPeriods, cancel_if_hung, words_for_hung
from .monitoring.metrics_exporter import SinkMetrics
from .monitoring.readiness import reasons_not_ready, shards_to_read
from .monitoring.status_and_warnings import StatusLogger
from .monitoring.worker_view import WorkerProgress, WorkerView, progress_of
from .monitoring.workers_wanted import WorkersWanted
from .pipeline.bounded_runs import (
    BoundedResult,
    Bounds,
    EndReason,
    RunCompletion,
    TerminationCondition,
    emitted_counts,
    shard_outcome,
)
from .pipeline.checked_sink_calls import handler_name_of, naming_sink, unfinished_of
from .pipeline.dead_letters import DeadLetterHandler
from .pipeline.emitter import Emitter
from .pipeline.memory_budget import MemoryBudget
from .pipeline.process_suspension import SuspensionDetector
from .pipeline.reading import ReadIntake, ReadTasks
from .pipeline.retention_gaps import RetentionGaps
from .shard_lifecycle import ShardLifecycle
from .shard_ownership import FixedOwnership, ShardOwnership
from .shards.discovery import MissingShards, OwnedShards
from .shards.shard_entry import ShardEntry
from .shards.shard_table import ShardTable
from .sink import SinkContext, Unfinished, always_may_write, stores_positions
from .startup import close_dependencies
from .watermarks import Alignment, EndedParentHold, StragglerDetector

if TYPE_CHECKING:
    from .elastic.job_storage import JobStorage


class ShardFetcher:
    """One worker of a job: it runs until it is stopped, with background tasks for reading, emitting, checkpoints and alarms.

    `ShardOwnership` decides which shards it reads. `ShardLifecycle` decides what follows when something happens to a shard.
    """

    def __init__(self, parts: FetcherParts) -> None:
        self._parts = parts
        self._dependencies = parts.job
        self._completion = parts.completion
        self._scheduler = parts.scheduler
        self._shards = parts.shards
        self._ownership = parts.ownership
        self._checkpointer = parts.checkpointer
        self._view = view = parts.view
        self._table = view.table
        self._emitter = view.emitter
        self._sink_metrics = SinkMetrics(parts.job.sink)
        self._has_failed = False
        """Whether an error ended the last run."""
        self._has_stopped_writing = self._was_cancelled = False
        """Whether the last run no longer writes. `_was_cancelled` says that it was cancelled as well."""
        self._released_after: Exception | None = None
        """The error of a run after which a last checkpoint was begun, or None. After such an error this fetcher cannot run again."""
        self._idle_ms: int | None = None
        """When this run was last found ready and without a shard to read (epoch ms)."""
        self._past_event_time: dict[str, int | None] = {}
        """The shards that ended the last run at its event-time bound, each with the watermark of its next record."""

    async def open(self) -> None:
        """Open the sink, restore stored state, list shards, and store the initial state before the first read.

        The initial state is stored in the state store and in the sink.

        Raises: StateError if stored state cannot be read or written; DataLossError if records were lost; StreamNotFoundError if a stream
        does not exist; KinesisError if a call fails; ConfigurationError if the sink cannot keep the positions of a group.
        """
        parts = self._parts
        opened = await self._ownership.open(await parts.dead_letters.open(parts.context))
        parts.gaps.pin(opened.pinned_ms, parts.job.starts.default.ago_ms)
        parts.snapshotter.resume_from(opened)
        outages = self._dependencies.settings.store_outages
        await wait_for_store(self._checkpointer.take_first, outages, "the state store or the sink")

    async def run(self) -> BoundedResult:
        """Run until `stop` is called, an error occurs, or every stream was deleted."""
        return await self.run_bounded(Bounds())

    async def run_bounded(self, bounds: Bounds) -> BoundedResult:
        """Run until a bound is reached. May be called again: the next run resumes where the last one ended.

        Raises: the error that ended the run; StateError if an earlier run has ended with an error after which no further run is possible;
        StateError if a write of the last run, which was cancelled twice, is still in progress.
        """
        if self._released_after is not None:
            # The last checkpoint after an error may leave out records that `MapSink` still holds. The next start reads them again, but this
            # fetcher would skip them.
            raise StateError(
                f"this fetcher cannot run again; create a new one to resume. An error has ended it: {describe_error(self._released_after)}"
            ) from self._released_after
        self._completion.check_finished()
        if self._was_cancelled:
            await self._release_shards()
        self._has_failed = self._was_cancelled = self._has_stopped_writing = is_cut_off = False
        self._idle_ms = None
        try:
            return await self._run(TerminationCondition(bounds, has_leases=self._ownership.has_leases))
        except asyncio.CancelledError:
            self._was_cancelled = self._has_stopped_writing
            raise
        except Exception as error:
            self._has_failed = is_cut_off = True
            is_cut_off = not await self._take_after(error)
            raise
        finally:
            await self._ownership.after_run(is_cut_off=is_cut_off)

    def stop(self) -> None:
        """End the run after the current write. May be called from anywhere in the event loop's thread."""
        self._completion.stop()

    def snapshot(self) -> dict[str, Any]:
        """Return the job's positions as a plain JSON-able dict. They cover exactly the records for which `Sink.write` has returned."""
        return self._parts.snapshotter.snapshot()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, then store a snapshot of only what the sink has confirmed.

        Raises: FencedError if another process owns the positions now; StateError if the snapshot cannot be stored; SinkError if the sink
        fails.
        """
        return await self._checkpointer.checkpoint()

    async def finish_given_up(self, checkpoint: asyncio.Task[dict[str, Any]]) -> None:
        """Wait for a checkpoint whose caller no longer waits. Cancel it when the sink works on records for `flink.job.drain.timeout`."""

        async def finish() -> None:
            await checkpoint

        job, times = self._dependencies, self._checkpointer.times
        seconds = job.settings.drain_ms / 1000
        await cancel_if_hung(finish(), job.sink, lambda: times.running_ms, seconds, job.clock, limits_all=True)

    async def close(self) -> None:
        """Close publishers and sink, each even if closing another one fails. A `close` that hangs is not waited for."""
        job = self._dependencies
        if self._has_failed or self._ownership.has_others:
            job.factory.keep_shared()
        began, seconds = job.clock.monotonic(), job.settings.drain_ms / 1000
        try:
            await close_dependencies(job, self._parts.dead_letters.close(seconds))
            if self._was_cancelled and job.clock.monotonic() - began < seconds:
                await self._release_shards()
        finally:
            await self._ownership.close()

    async def _release_shards(self) -> None:
        """Let other workers of the group acquire the shards of a cancelled run at once.

        Nothing is released while a call of user code runs. A call in a thread cannot be ended, and could write at the same time as the next
        reader of the shard.
        """
        left = unfinished_of(self._dependencies.sink)
        if left is None or not left.calls:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._ownership.after_run(is_cut_off=True)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics as a plain dict: `worker` has those of the worker, and `shards` those of each `stream/shard-id`."""
        return self._view.collect(self._dependencies.clock, unfinished_of(self._dependencies.sink))

    def retention_ms(self, stream: str) -> int | None:
        """Return how long the stream keeps its records (ms), or None while that is not known."""
        return self._view.retention.of(stream)

    def progress(self) -> WorkerProgress:
        """Return the numbers of a progress line. They cost far less to compute than all metrics."""
        job = self._dependencies
        return progress_of(self._view, unfinished_of(job.sink), job.clock.now_ms())

    def sink_metrics(self) -> list[SinkMetric]:
        """Return the metrics that the sink exports. If the sink raises, return none and log one warning."""
        return self._sink_metrics.read()

    def sink_unfinished(self) -> Unfinished | None:
        """Return the records that the sink has not finished, or None if it does not report them."""
        return unfinished_of(self._dependencies.sink)

    @property
    def checkpoint_times(self) -> CheckpointAge:
        """When checkpoints were stored, and how many written records no stored checkpoint covers yet."""
        return self._checkpointer.times

    @property
    def ending(self) -> asyncio.Event:
        """An event that is set when a run begins to end, and cleared when the next run starts."""
        return self._completion.ending

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last run, or that is ending the current one."""
        return self._completion.error

    def hung_publishers(self) -> list[str]:
        """Return the publishers that have not ended although they were cancelled, and where each of them waits."""
        return self._shards.hung_publishers

    def reasons_not_ready(self) -> list[str]:
        """Return why the worker is not ready, as sentences for people, without a call to a service.

        The list is empty while the worker reads and its checkpoints are stored.
        """
        now_ms = self._dependencies.clock.now_ms()
        alarms = self._view.alarm_monitor.active_alarms
        times, undecided = self._checkpointer.times, self._view.undecided_commit()
        reasons = reasons_not_ready(
            self._completion, self._table, times, alarms, now_ms, undecided, idle_ms=self._idle_ms
        )
        # If calls to the source hang, listings may hang too, and new shards would not be found. So slow calls are a reason too.
        reasons = reasons or slow_calls(self._dependencies.factory) or self._ownership.reasons_not_ready()
        if not reasons and not shards_to_read(self._table):
            self._idle_ms = now_ms
        return reasons

    async def wait_ready(self) -> None:
        """Wait until the run has read each of its open shards once, or has ended. Raises: the error that ended the run."""
        while not self._completion.has_ended and not self._has_read_every_shard():  # noqa: ASYNC110 - no event for each read
            await asyncio.sleep(READY_CHECK_SECONDS)
        if self._completion.error is not None:
            raise self._completion.error

    def _has_read_every_shard(self) -> bool:
        reading = (entry for entry in self._table if entry.is_reading)
        # A worker that joins its group has no shards yet, and would count as one that has read all of them.
        is_placed = self._completion.is_running and not self._ownership.reasons_not_ready()
        return is_placed and all(entry.reading.last_read_ms is not None for entry in reading)

    # --- a run ------------------------------------------------------------------------------------------------------------------

    async def _run(self, run: TerminationCondition) -> BoundedResult:
        self._start_run(run)
        emitted_before = {entry.key: emitted_counts(entry) for entry in self._table}
        start_task, view = self._completion.start_task, self._view
        emitting = start_task(self._emitter.run(self._completion.complete))
        checkpointing = start_task(self._scheduler.run(self._checkpointer.take_periodic))
        others = [
            start_task(self._heartbeat()),
            start_task(self._check_owner()),
            start_task(view.suspension.run()),
            start_task(self._ownership.discover()),
            start_task(self._dependencies.streams.run(self._on_look)),
            start_task(self._completion.complete_after(run.max_time)),
            start_task(view.alarm_monitor.run()),
            start_task(view.retention.run()),
        ]
        try:
            self._shards.start_readers()
            reason = await self._completion.wait()
            if reason is EndReason.STOPPED:
                await self._ownership.before_stop()
        finally:
            try:
                await self._end_run(run, emitting, checkpointing, others)
            finally:  # Also if the run was cancelled while it ended.
                self._has_stopped_writing = emitting.done() and checkpointing.done()
        await self._take_last(reason)
        outcomes = {
            entry.key: shard_outcome(entry, emitted_before.get(entry.key, (0, 0, 0)), self._past_event_time)
            for entry in self._table
        }
        return BoundedResult(reason, outcomes, run.records)

    async def _take_last(self, reason: EndReason) -> None:
        """Take the last checkpoint of a run. First wait for running calls of user code:

        - After `stop`, for `flink.job.drain.timeout` in all. If no positions are stored, wait as long for each call.
        - After `max_time`, for `flink.job.drain.timeout` for each call.
        - After any other end, without limit.

        If a call takes longer, the checkpoint stores only what is finished.
        """
        checkpointer, job = self._checkpointer, self._dependencies
        ending, times = checkpointer.take_last(is_stopped=reason is EndReason.STOPPED), checkpointer.times
        seconds = job.settings.drain_ms / 1000 if reason in (EndReason.STOPPED, EndReason.MAX_TIME) else inf
        limits_all = reason is EndReason.STOPPED and self.stores_positions
        hung = await cancel_if_hung(
            ending, job.sink, lambda: times.running_ms, seconds, job.clock, limits_all=limits_all
        )
        if hung is not None:
            log.error(
                "the job ends although %s (flink.job.drain.timeout): %s. %s",
                words_for_hung(hung, seconds, limits_all),
                hung.reason,
                "The next start reads its records, and the later records of their shards, again"
                if self.stores_positions
                else "No positions are stored, so no start continues at these records: set flink.state.uri",
            )
            await checkpointer.take_periodic()
            await self._ownership.after_run(is_cut_off=True)

    @property
    def stores_positions(self) -> bool:
        """Whether positions are stored: in the store of the job or the group, or by the sink itself."""
        job = self._dependencies
        return job.alone is not None or self._ownership.has_leases or stores_positions(type(job.sink))

    async def _take_after(self, error: Exception) -> bool:
        """Try to take a last checkpoint after an error has ended the run. The next start then repeats less. Return whether this was tried.

        It is not tried if another process may own the positions, or if the sink may have lost records. The checkpoint takes at most
        `flink.job.drain.timeout`. Its own error is only logged.
        """
        job = self._dependencies
        is_in_doubt = isinstance(error, FencedError | StateError | ImpossibleStateError)
        if not self.stores_positions:
            self._emitter.turn.allow_flush()  # No checkpoint stores positions, so another run may follow.
            return False
        if is_in_doubt and not isinstance(error, DataLossError):
            return False
        self._released_after = error
        seconds, ending = job.settings.drain_ms / 1000, asyncio.ensure_future(self._take_if_sound())
        try:
            # A store that is away raises its own error after `seconds`, which is worth waiting for.
            ended, _ = await asyncio.wait([ending], timeout=seconds + GRACE_SECONDS)
            if ended and not ending.cancelled():
                return ending.result()
            late = f"it took longer than {seconds:.0f} s (flink.job.drain.timeout)"
            # The last checkpoint ended as cancelled, although nothing here has cancelled it. A CancelledError would hide the error that
            # ended the run, and the run would seem to be cancelled.
            reason = "the state store or the sink raised CancelledError" if ending.cancelled() else late
            log.warning(
                "no last checkpoint could be stored after the error, so the next start repeats more records: %s", reason
            )
        except Exception as failure:
            log.warning(
                "no last checkpoint could be stored after the error, so the next start repeats more records: %s",
                with_notes(failure),
            )
        finally:
            ending.cancel()
            await end_or_leave([ending], GRACE_SECONDS)
        return False

    async def _take_if_sound(self) -> bool:
        with naming_sink(self._dependencies.sink, "may_flush_after_error"):
            is_safe = self._dependencies.sink.may_flush_after_error()
        if is_safe:
            self._emitter.turn.allow_flush()
        elif self._emitter.turn.error is not None:
            return False
        await self._checkpointer.take_last(is_stopped=True)
        return True

    def _start_run(self, run: TerminationCondition) -> None:
        self._completion.start()
        self._shards.start_run(run)
        self._parts.status_logger.start_run(stop_at_tip=run.stop_at_tip)
        self._view.suspension.reset()
        self._checkpointer.times.start_run()
        self._scheduler.start()
        self._ownership.start_run(self._completion.start_task)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._dependencies.settings.sync_interval_ms / 1000)
            self._shards.on_heartbeat()
            unfinished = unfinished_of(self._dependencies.sink)
            self._parts.status_logger.check(unfinished)
            self._view.observe_load(self._dependencies.clock.now_ms(), unfinished)
            self._shards.start_readers()
            self._view.intake.retry_pending_reads()

    async def _check_owner(self) -> None:
        """End the run soon after another process has acquired the positions. Otherwise the two would throttle each other's reads."""
        while (check_owner := self._dependencies.check_owner) is not None:
            await asyncio.sleep(OWNER_SECONDS)
            # These errors are ignored here, because checkpoints decide how long an outage may last.
            with suppress(StateError, RetriesExhaustedError):
                await check_owner()

    async def _on_look(self) -> None:
        await self._ownership.on_streams_read()
        await self._view.retention.request_missing()

    async def _end_run(
        self,
        run: TerminationCondition,
        emitting: asyncio.Task[None],
        checkpointing: asyncio.Task[None],
        others: list[asyncio.Task[None]],
    ) -> None:
        """Stop all tasks of the run, then drop the records that were read and not emitted.

        The emitter and the checkpoints are stopped and awaited, never cancelled, because a write or a checkpoint must not be interrupted.
        """
        self._emitter.stop()
        self._scheduler.stop()
        if self._completion.error is not None:
            # Reading stops first, because the write that is awaited below may take long, and another start may already read the shards.
            self._shards.cancel_readers()
        for task in others:
            task.cancel()
        try:
            for hung in await end_or_leave(others, self._dependencies.settings.drain_ms / 1000):
                log.error(
                    "the run ends although a call was cancelled and has not ended within flink.job.drain.timeout: it "
                    "waits at %s",
                    waiting_line(hung),
                )
        finally:
            # Also if the run is cancelled while it ends: the next run of this fetcher must not find a write of this one.
            try:
                await self._completion.finish(asyncio.wait((emitting, checkpointing)))
            finally:
                # Computed before `end_run` drops the queues, which are needed for it.
                past = filter(run.is_past_event_time, self._table)
                self._past_event_time = {entry.key: entry.next_watermark for entry in past}
                await self._shards.end_run()


def build_fetcher(job: FetcherDependencies, group: JobStorage | None = None) -> ShardFetcher:
    """Build the fetcher of a process that reads every shard (ALONE), or that shares its shards with a group (GROUP).

    The inner functions (`on_resume` and two others) let a part call another part that is built later.
    """

    def on_resume(gap_seconds: float) -> None:
        shards.on_resume(gap_seconds)
        checkpointer.times.on_resume(gap_seconds)

    def on_children_found(children: Sequence[Shard]) -> None:
        ownership.add_children(children)

    def on_reader_failed(entry: ShardEntry, error: BaseException) -> None:
        shards.on_reader_failed(entry, error)

    if group is not None:
        from .elastic.leased_ownership import GroupWatermarkTracker
        from .pipeline.current_worker import CurrentWorker, LeaseGate

        current = CurrentWorker()
        # A process of a group cannot know that a finite source has ended, because other processes may still be reading.
        job = replace(job, tracker=GroupWatermarkTracker(current), is_endless=lambda stream: True)
    settings, clock, tracker = job.settings, job.clock, job.tracker
    completion, leases = RunCompletion(), GroupCounters()
    scheduler = CheckpointScheduler(settings.checkpoint_interval_ms)
    missing = MissingShards(job.shard_exists)
    table = ShardTable(tracker.has_others, missing.is_expired, job.is_endless, settings.idle_intervals)
    suspension = SuspensionDetector(clock, on_resume)
    may_write_now = always_may_write if group is None else LeaseGate(current, suspension, clock).may_write_now

    alignment = Alignment(tracker, settings.alignment, clock, suspension)
    gaps = RetentionGaps(job.retention, suspension, clock, settings.accepts_loss)
    budget = MemoryBudget(settings.budget)
    intake = ReadIntake(budget, clock, suspension, on_children_found, gaps)
    dead_letters = DeadLetterHandler(table.count, settings.on_poison, job.dead_letters)
    emitter = Emitter(
        job.sink,
        alignment,
        intake,
        clock,
        suspension,
        settings,
        dead_letters.handle_undeserialized,
        may_write_now,
        job.traced,
    )
    readers = ReadTasks(
        job.factory,
        table,
        intake,
        job.decorator_for,
        job.use_continuations,
        gaps,
        clock,
        settings,
        on_reader_failed,
    )
    shards = ShardLifecycle(
        job,
        completion,
        scheduler.request,
        table=table,
        readers=readers,
        alignment=alignment,
        emitter=emitter,
        ended_parents=EndedParentHold(table, tracker.has_others, settings.tracker_timeout_ms, clock, job.is_endless),
        stragglers=StragglerDetector(table, tracker, settings.max_lag_ms),
    )
    table.set_listener(shards)

    ownership: ShardOwnership
    checkpointer: Checkpointer
    if group is None:
        owned = OwnedShards(table, job.discovery, missing, job.is_ours, clock)
        ownership = FixedOwnership(job, table, owned, shards, missing, scheduler.request)
        snapshotter = Snapshotter(job, table, lambda: owned.kept_states)
        checkpointer = SnapshotCheckpointer(job, snapshotter, emitter, dead_letters)
    else:
        from .elastic.group_membership import GroupMembership
        from .elastic.job_storage import group_job_of
        from .elastic.lease_checkpointer import LeaseCheckpointer
        from .elastic.leased_ownership import LeasedOwnership
        from .elastic.leased_shards import LeasedShards

        snapshotter, group_job = Snapshotter(job, table), group_job_of(job.streams, job.sink, group.job_name)
        leased = LeasedShards(job, table, shards, emitter, dead_letters, snapshotter)
        membership = GroupMembership(
            group,
            leased,
            current,
            clock,
            job=group_job,
            counts=leases,
            on_drain=completion.stop,
            on_error=completion.fail,
            # The emitter is woken at once: the next heartbeat may be much later than the two seconds in which held shards should
            # continue (W9).
            on_advance=emitter.wake,
            handler=handler_name_of(job.sink),
        )
        ownership = LeasedOwnership(job, group, group_job, table, leased, membership)
        checkpointer = LeaseCheckpointer(membership, snapshotter, suspension, leased.commit_counts)

    checkpointer.times.count_records(lambda: emitter.records)
    alarm_monitor = AlarmMonitor(job, table, alignment, emitter, leases)
    retention = RetentionPeriods(job.retention_ms, job.streams)
    return ShardFetcher(
        FetcherParts(
            job=job,
            context=SinkContext(
                tuple(job.streams),
                scheduler.request,
                may_write=may_write_now,
                resume_writing=emitter.wake,
                traced=job.traced,
                outages=job.settings.store_outages,
                drain_seconds=job.settings.drain_ms / 1000,
                is_stopping=lambda: completion.is_cut_short,
                is_lost=lambda: emitter.has_lost_batch,
                value_type=job.value_type,
                value_types=job.value_types,
                clock=clock,
            ),
            completion=completion,
            scheduler=scheduler,
            shards=shards,
            ownership=ownership,
            snapshotter=snapshotter,
            checkpointer=checkpointer,
            dead_letters=dead_letters,
            gaps=gaps,
            status_logger=StatusLogger(
                table,
                alignment,
                emitter.local_watermark,
                clock,
                readers.line_of,
                lambda: emitter.records,
                type(job.factory).__name__,
            ),
            view=WorkerView(
                table,
                tracker,
                alignment,
                emitter,
                intake,
                alarm_monitor,
                retention,
                suspension,
                checkpointer.times,
                leases,
                checkpointer.commit_counts,
                WorkersWanted(clock),
                dead_letters,
            ),
        )
    )


log = logging.getLogger("recordpublisher.fetcher")
READY_CHECK_SECONDS = 0.02
RELEASE_SECONDS = 2.0
"""How long the release of shards may take after a cancelled run (seconds). They are released when the fetcher is closed or runs again."""
OWNER_SECONDS = 5.0
"""Seconds between two checks that no other process has acquired the positions.

Each check reads one document, for which DynamoDB charges half a read unit.
"""


class FetcherParts(msgspec.Struct, frozen=True):
    """The parts that `build_fetcher` makes for one fetcher.

    - `view`: the parts from which metrics are computed.
    - `context`: the context with which the sink is opened.
    """

    job: FetcherDependencies
    context: SinkContext
    completion: RunCompletion
    scheduler: CheckpointScheduler
    shards: ShardLifecycle
    ownership: ShardOwnership
    snapshotter: Snapshotter
    checkpointer: Checkpointer
    dead_letters: DeadLetterHandler
    gaps: RetentionGaps
    status_logger: StatusLogger
    view: WorkerView
