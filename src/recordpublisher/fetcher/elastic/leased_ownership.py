"""Adds shards to a fetcher when its process acquires their leases, and removes them when it loses the leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from recordpublisher.publishers.base import is_fault_of_plugin
from recordpublisher.publishers.errors import (
    ConfigurationError,
    RecordPublisherError,
    StoreUnavailableError,
    StreamNotFoundError,
)
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.properties.job_properties import JOB_WORKERS
from recordpublisher.publishers.safe_text import few_of, with_notes
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..checkpoints.shard_starts import data_loss_error
from ..checkpoints.snapshot_format import RestoredState
from ..checkpoints.staged_commits import warn_of_rows_of_other_positions
from ..conditional_store import wait_for_store
from ..dependencies import FetcherDependencies
from ..global_watermark_rules import raised_watermark
from ..leases.group_store import GroupStore, alone_part_of
from ..leases.lease_table import GroupJob, LeaseTable
from ..leases.shard_listing import ShardListing
from ..pipeline.checked_sink_calls import naming_sink
from ..pipeline.current_worker import CurrentWorker
from ..shard_ownership import ShardOwnership, StartTask
from ..shards.discovery import MissingShards
from ..shards.shard_table import ShardTable
from ..sink import CommittingSink, SinkContext, entry_store_of
from ..startup import OpenedJob, where_it_begins
from ..watermarks import ShardsStatus, WatermarkTracker
from .group_membership import GroupMembership, replace_group_job
from .job_storage import JobStorage, refuse_positions_in_sink
from .leased_shards import LeasedShards

log = logging.getLogger("recordpublisher.fetcher")
start_log = logging.getLogger("recordpublisher.start")
LISTING_PAUSE_SECONDS = 1.0
"""Approximate pause before the next listing, if the last one lacks a shard whose lease this process holds (seconds)."""


class LeasedOwnership(ShardOwnership):
    """Lets this process take part in its group: joins and leaves the group, and reads the shards whose leases the process holds."""

    has_leases = True

    def __init__(
        self,
        job: FetcherDependencies,
        group: JobStorage,
        group_job: GroupJob,
        table: ShardTable,
        leased: LeasedShards,
        membership: GroupMembership,
    ) -> None:
        self._job = job
        self._group = group
        self._group_job = group_job
        self._table = table
        self._looked_at = frozenset(job.streams)
        self._listing: ShardListing | None = None
        self.leased = leased
        self.membership = membership

    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, list shards, and read the group's documents.

        Raises: ConfigurationError if the sink keeps positions in a way that cannot move between processes; StateError if stored documents
        cannot be used, or if other processes run another job; StreamNotFoundError if a stream does not exist; KinesisError if a call
        fails.
        """
        job = self._job
        with naming_sink(job.sink, "open"):
            opened = await job.sink.open(context)
        if opened is not None:
            reason = "the sink stores positions itself, and one process cannot give them to another"
            raise ConfigurationError(JOB_WORKERS.key, "GROUP", "ALONE for this sink", reason=reason)
        table = await wait_for_store(self._begin_job, job.settings.store_outages)
        self.leased.on_listed(await job.discovery.list_all())
        starts = await job.starts.pinned(lambda: job.pin_latest(job.streams[0]))
        if table is None:
            begins = where_it_begins(0, None, starts.default, job.job_name, is_latest=job.starts.default.is_tip)
        else:  # The start of the group counts, and not that of this process.
            known = [shard for shard, lease in table.leases.items() if lease.was_owned or lease.ended]
            count = sum(map(self._group_job.reads, known))
            begins = where_it_begins(
                count, None, table.start, job.job_name, is_latest=table.is_latest, others=len(known) - count
            )
        # Where a job that ran alone has stopped is in its worker's positions, which are read later.
        if table is None or table.alone is None:
            start_log.info(
                "%s in %s reads %s; it %s",
                "a new group" if table is None else "the group",
                self._group.store.place,
                few_of(sorted(job.streams)),
                begins,
            )
        interval = job.settings.discovery_interval_ms / 1000
        self._listing = ShardListing(
            self._list_again,
            MissingShards(job.shard_exists),
            starts.default,
            job.clock,
            interval if interval > 0 else float("inf"),
            is_latest=job.starts.default.is_tip,
            deleted=job.discovery.deleted,
            not_found=job.discovery.not_found,
        )
        return OpenedJob((), {}, starts, None, generation=1)

    def start_run(self, start_task: StartTask) -> None:
        """Join the group. The process reads a shard of an earlier run only after it has acquired a new lease."""
        assert self._listing is not None
        self.membership.start(start_task, self._listing)

    async def discover(self) -> None:
        """List shards whenever a lease names a shard that this process does not know yet.

        Raises: DataLossError if that shard is past retention, and the job does not accept the loss of its records.
        """
        missing = MissingShards(self._job.shard_exists)
        while True:
            await self.leased.has_unknown.wait()
            self.leased.has_unknown.clear()
            try:
                listed = await self._list_again()
                self.leased.on_listed(listed)
                await self._end_expired(listed, missing)
            except StoreUnavailableError as error:
                log.warning("%s", error)
                self.leased.has_unknown.set()
            await asyncio.sleep(LISTING_PAUSE_SECONDS * (0.5 + self._group.chance.random()))

    def add_children(self, children: Iterable[Shard]) -> None:
        """Add child shards to the table of known shards. They are read when this process acquires their leases."""
        self._table.add_listed(children)

    async def on_streams_read(self) -> None:
        """Handle a change of the list of streams.

        The shards of a new stream get leases. The shards of a removed stream keep theirs, but no process reads them.
        """
        streams = frozenset(self._job.streams)
        if self._listing is not None and streams - self._looked_at:
            self._listing.list_soon()
        if streams != self._looked_at:
            log.info("the job's list of streams is now: %s", few_of(sorted(self._job.streams)))
        removed, self._looked_at = self._looked_at - streams, streams
        self._job.discovery.deleted.intersection_update(streams)
        await self.leased.on_streams()
        for stream in sorted(removed):
            log.info(
                "stream %s is no longer in the job's list of streams, so it is no longer read",
                stream,
                extra=log_extra(stream),
            )

    def reasons_not_ready(self) -> list[str]:
        """Return why nothing is read or written, as sentences for people; an empty list if the process is ready.

        Nothing is written while the group's store does not confirm heartbeats. Nothing is read until the leases of killed workers have
        expired. A process without shards is ready while other workers read, because it acquires their shards if they fail.
        """
        if not self.membership.may_write:
            return [f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink"]
        if self.membership.is_joining:
            return ["no shard is read yet: this worker is joining its group"]
        if not (silent := self.membership.waits_for):
            return []
        return [
            f"no shard is read yet: all shards belong to other workers ({few_of(sorted(silent))}), which may have been killed. The next "
            "heartbeat of one makes this worker ready; without any, this worker reads the shards "
            f"{self._group.settings.duration:g} s after its start"
        ]

    async def before_stop(self) -> None:
        """Announce that this process stops, and continue to read until the other workers know of it.

        They can then acquire the shards soon after the stop.
        """
        await self.membership.announce()

    async def after_run(self, *, is_cut_off: bool) -> None:
        """Leave the group. The next run joins it again.

        `is_cut_off`: whether an error, the drain timeout or a cancellation has ended the run. Even then other workers acquire the shards at
        once.
        """
        if is_cut_off:
            await self.membership.seal()
        await self.membership.cancel()

    @property
    def has_others(self) -> bool:
        """Whether the group has other processes that continue to read."""
        return self.membership.has_others

    async def close(self) -> None:
        """Close the group's store, and the store next to the sink's rows if there is one."""
        await self._group.store.close()
        if (entries := entry_store_of(self._job.sink)) is not None:
            await entries.close()

    async def _begin_job(self) -> LeaseTable | None:
        """Check that this process may take part in the group of the job. Return the lease table of the group, or None if it is new."""
        store, entries = self._group.store, entry_store_of(self._job.sink)
        if (found := await GroupStore(store).read_table()) is None:
            if entries is not None:
                await refuse_positions_in_sink(store, entries)
            if isinstance(self._job.sink, CommittingSink):
                await warn_of_rows_of_other_positions(self._job.sink, store.place)
        elif found.document.alone is not None:  # raises if another sink has the positions
            await alone_part_of(GroupStore(store), None if entries is None else GroupStore(entries), found.document)
        await replace_group_job(store, self._group_job, self._group.settings, self._job.clock, entries)
        return None if found is None else found.document

    async def _end_expired(self, listed: Sequence[Shard], missing: MissingShards) -> None:
        """Mark shards of this process as ended if no listing shows them and they are past retention. Each is a gap in the records.

        A shard of a deleted stream is left out, and so is a shard that is younger than every listed shard, because then the listing is old.

        Raises: DataLossError if records were lost and the job does not accept that; StoreUnavailableError if the source does not answer.
        """
        places, discovery = [key.rpartition("/") for key in self.leased.unknown], self._job.discovery
        shards = [Shard(stream, shard_id) for stream, _, shard_id in places if stream not in discovery.not_found]
        for stream in discovery.not_found.intersection(stream for stream, _, _ in places):
            # Recorded here because no process reads this shard, so no reader would notice that its stream was deleted.
            discovery.on_deleted(stream)
        unknown = [shard for shard in shards if not is_listing_older_than(shard, listed)]
        try:
            await missing.check([shard.key for shard in unknown], {shard.stream for shard in unknown})
        except RecordPublisherError as error:
            raise StoreUnavailableError(
                f"shards of the job are missing in the service's list, and the check whether they still exist has failed: {error}"
            ) from error
        asked = self.leased.unknown.intersection(shard.key for shard in unknown)
        states = self.leased.states(filter(missing.is_expired, asked))
        if not states:
            return
        lost = data_loss_error(list(states), RestoredState(states))
        if not self._job.settings.accepts_loss:
            raise lost
        log.error("%s; the job continues because flink.state.dataloss=CONTINUE", lost.loss)
        self.leased.end_expired(states)

    async def _list_again(self) -> Sequence[Shard]:
        """List all shards.

        Raises: StreamNotFoundError if a stream does not exist; PluginError, or another error that shows a fault of a plugin;
        StoreUnavailableError for any other failure, so that the caller tries again.
        """
        try:
            return await self._job.discovery.list_all()
        except StreamNotFoundError:
            raise
        except RecordPublisherError as error:
            if is_fault_of_plugin(error):
                raise
            raise StoreUnavailableError(f"the shards cannot be listed: {with_notes(error)}") from error


class GroupWatermarkTracker(WatermarkTracker):
    """Owns the highest global watermark that this process knows. Workers report their watermarks with their heartbeats, not here.

    The fetcher of this process treats shards of other workers as finished, because the lease table makes sure that parents are read before
    their children.
    """

    def __init__(self, current: CurrentWorker) -> None:
        self._current = current
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Return the global watermark of the group. The arguments are not used, because heartbeats report the shards of this worker."""
        return self.current()

    def current(self) -> int | None:
        """Return the highest known global watermark. It never falls, even when a new worker joins in this process."""
        self._highest = raised_watermark(self._highest, self._current.group_watermark)
        return self._highest

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark that a worker has reported with its last heartbeat."""
        return self._current.group_maximum

    @property
    def waits_for_others(self) -> bool:
        """Whether a shard of another worker had the lowest watermark when this worker last read the group's documents."""
        return self._current.waits_for_others

    @property
    def worker(self) -> str | None:
        """Name of the worker that is running, or ran last."""
        return self._current.name

    def after_suspension(self) -> None:
        """Withdraw the permission to write until the next heartbeat, because other workers may have replaced this one."""
        self._current.on_suspension()

    @property
    def has_others(self) -> bool:
        """Whether shards of other workers count. Always True."""
        return True
