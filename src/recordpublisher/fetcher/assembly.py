"""Builds the parts of a fetcher and connects them. It is the only place that knows all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from recordpublisher.publishers.shards import Shard

from .checkpointer import Checkpointer, SnapshotCheckpointer, Snapshotter
from .checkpoints.checkpoint_scheduler import CheckpointScheduler
from .dependencies import FetcherDependencies
from .leases.lease_counts import LeaseCounts
from .monitoring.alarm_monitor import AlarmMonitor
from .monitoring.retention_periods import RetentionPeriods
from .monitoring.status_log import StatusLogger
from .monitoring.subtask_view import SubtaskView
from .monitoring.workers_wanted import WorkersWanted
from .ownership.fixed_ownership import FixedOwnership
from .ownership.shard_ownership import ShardOwnership
from .pipeline.dead_letters import DeadLetterHandler
from .pipeline.emitter import Emitter, RunCompletion
from .pipeline.reading import MemoryBudget, ReadIntake, ReadTasks
from .pipeline.retention_gaps import RetentionGaps
from .pipeline.shard_ends import ShardEnds
from .pipeline.suspension import SuspensionDetector
from .shard_lifecycle import ShardLifecycle
from .shards.shard_entry import ShardEntry
from .shards.shard_table import MissingShards, OwnedShards, ShardTable
from .sink import SinkContext, always
from .subtask_fetcher import FetcherParts, SubtaskFetcher
from .watermarks import Alignment, EndedParentHold, StragglerDetector

if TYPE_CHECKING:
    from .elastic.group_place import ElasticGroup


def build_fetcher(job: FetcherDependencies, group: ElasticGroup | None = None) -> SubtaskFetcher:
    """Build the fetcher of a process that reads every shard (ALONE), or that shares its shards with a group (GROUP).

    The parts are built from the bottom up. A part calls a part that is built later through one of the three functions below. The modules
    that only a group needs are imported only if there is a group, because most jobs run alone.
    """

    def on_resume(gap_seconds: float) -> None:
        shards.on_resume(gap_seconds)

    def on_children_found(children: Sequence[Shard]) -> None:
        ownership.add_children(children)

    def on_reader_failed(entry: ShardEntry, error: BaseException) -> None:
        shards.on_reader_failed(entry, error)

    if group is not None:
        from .elastic.group_place import job_of
        from .elastic.leased_ownership import GroupTracker
        from .pipeline.lease_gate import CurrentWorker, LeaseGate

        current = CurrentWorker()
        # No process of a group sees the end of a finite source, because other processes may still read.
        job = replace(job, tracker=GroupTracker(current), is_endless=lambda stream: True)
    settings, clock, tracker = job.settings, job.clock, job.tracker
    completion, leases = RunCompletion(), LeaseCounts()
    scheduler = CheckpointScheduler(settings.checkpoint_interval_ms)
    missing = MissingShards(job.shard_exists)
    table = ShardTable(tracker.has_others, missing.is_expired, job.is_endless, settings.idle_intervals)
    suspension = SuspensionDetector(clock, on_resume)
    may_write_now = always if group is None else LeaseGate(current, suspension, clock).may_write_now

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
        ShardEnds(job.factory, clock),
        on_reader_failed,
        settings.drain_ms / 1000,
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
    table.tell(shards)

    ownership: ShardOwnership
    checkpointer: Checkpointer
    if group is None:
        owned = OwnedShards(table, job.discovery, missing, job.is_ours, clock)
        ownership = FixedOwnership(job, table, owned, shards, missing, scheduler.request)
        snapshotter = Snapshotter(job, table, lambda: owned.kept_states)
        checkpointer = SnapshotCheckpointer(job, snapshotter, emitter, dead_letters)
    else:
        from .elastic.group_place import job_of
        from .elastic.leased_ownership import LeaseCheckpointer, LeasedOwnership
        from .elastic.leased_shards import LeasedShards
        from .elastic.worker_lives import WorkerLives

        snapshotter, group_job = Snapshotter(job, table), job_of(job.streams, job.sink, group.job_name)
        leased = LeasedShards(job, table, shards, emitter, dead_letters, snapshotter)
        lives = WorkerLives(
            group,
            leased,
            current,
            clock,
            job=group_job,
            counts=leases,
            on_drain=completion.stop,
            # A sync interval may be much longer than the two seconds in which a held worker learns of progress (W9).
            on_advance=emitter.wake,
        )
        ownership = LeasedOwnership(job, group, group_job, table, leased, lives)
        checkpointer = LeaseCheckpointer(lives, snapshotter, suspension, leased.commit_counts)

    alarm_monitor = AlarmMonitor(job, table, alignment, emitter, leases)
    retention = RetentionPeriods(job.retention_ms, job.streams)
    return SubtaskFetcher(
        FetcherParts(
            job=job,
            context=SinkContext(
                tuple(job.streams),
                scheduler.request,
                may_write=may_write_now,
                resume_writing=emitter.wake,
                traced=job.traced,
                value_type=job.value_type,
            ),
            completion=completion,
            scheduler=scheduler,
            shards=shards,
            ownership=ownership,
            snapshotter=snapshotter,
            checkpointer=checkpointer,
            dead_letters=dead_letters,
            gaps=gaps,
            status_logger=StatusLogger(table, alignment, emitter.local_watermark, clock),
            view=SubtaskView(
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
