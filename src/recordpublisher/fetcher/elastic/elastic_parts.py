"""ElasticParts: what a process of a group has in place of a fixed part of the shards and a snapshot (ELASTIC assignment)."""

from collections.abc import Callable
from dataclasses import replace

from ..checkpointer import Snapshotter
from ..dependencies import FetcherDependencies
from ..leases.lease_counts import LeaseCounts
from ..ownership.shard_ownership import ShardOwnership
from ..pipeline.bad_record_handler import BadRecordHandler
from ..pipeline.emitter import Emitter
from ..pipeline.lease_gate import CurrentWorker, LeaseGate
from ..pipeline.suspension import SuspensionDetector
from ..shard_lifecycle import ShardLifecycle
from ..shards.shard_table import ShardTable
from .group_entry import job_of
from .group_tracker import GroupTracker
from .lease_checkpointer import LeaseCheckpointer
from .leased_ownership import LeasedOwnership
from .leased_shards import LeasedShards
from .worker_lives import ElasticGroup, WorkerLives


class ElasticParts:
    """Makes them in the order in which `build_fetcher` needs them. `job` is what the other parts are made of."""

    def __init__(self, group: ElasticGroup, job: FetcherDependencies) -> None:
        self._group = group
        self._current = CurrentWorker()
        # No process sees the end of a finite source: others may still read.
        self.job = replace(job, tracker=GroupTracker(self._current), is_endless=lambda stream: True)

    def may_write_now(self, suspension: SuspensionDetector) -> Callable[[], bool]:
        """Whether this process may write (E4)."""
        return LeaseGate(self._current, suspension, self.job.clock).may_write_now

    def positions(
        self,
        table: ShardTable,
        shards: ShardLifecycle,
        emitter: Emitter,
        bad_records: BadRecordHandler,
        suspension: SuspensionDetector,
        counts: LeaseCounts,
        on_drain: Callable[[], None],
    ) -> tuple[ShardOwnership, LeaseCheckpointer, Snapshotter]:
        """Who owns the shards, and who stores their positions."""
        job, group = self.job, self._group
        snapshotter, group_job = Snapshotter(job, table), job_of(job.streams, job.sink, group.job_name)
        leased = LeasedShards(job, table, shards, emitter, bad_records, snapshotter)
        lives = WorkerLives(group, leased, self._current, job.clock, job=group_job, counts=counts, on_drain=on_drain)
        ownership = LeasedOwnership(job, group, group_job, table, leased, lives)
        return ownership, LeaseCheckpointer(lives, snapshotter, suspension, job.clock), snapshotter
