"""Adds and removes the shards of a fetcher as its process acquires and loses leases (ELASTIC)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from recordpublisher.publishers.errors import (
    ConfigurationError,
    RecordPublisherError,
    StoreUnavailableError,
    StreamNotFoundError,
)
from recordpublisher.publishers.properties.groups.job import SHARD_ASSIGNMENT
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..checkpoints.commits import tell_of_others
from ..checkpoints.initial_states import data_loss_error
from ..checkpoints.snapshot import RestoredState
from ..committing_sink import CommittingSink, entries_of
from ..conditional_store import wait_for_store
from ..dependencies import FetcherDependencies
from ..leases.documents.group_job import GroupJob
from ..leases.documents.group_store import GroupStore
from ..leases.shard_listing import ShardListing
from ..ownership.shard_ownership import ShardOwnership, StartTask
from ..pipeline.sink_errors import naming_sink
from ..shards.missing_shards import MissingShards
from ..shards.shard_table import ShardTable
from ..sink import SinkContext
from ..startup import OpenedJob
from .group_entry import begin_job
from .group_place import ElasticGroup
from .leased_shards import LeasedShards
from .worker_lives import WorkerLives

log = logging.getLogger("recordpublisher.fetcher")
LISTING_PAUSE_SECONDS = 1.0
"""Approximate pause before the next listing for a shard that the last one did not show (seconds)."""


class LeasedOwnership(ShardOwnership):
    """Owns the part that this process takes in its group."""

    has_leases = True

    def __init__(
        self,
        job: FetcherDependencies,
        group: ElasticGroup,
        group_job: GroupJob,
        table: ShardTable,
        leased: LeasedShards,
        lives: WorkerLives,
    ) -> None:
        self._job = job
        self._group = group
        self._group_job = group_job
        self._table = table
        self._looked_at = frozenset(job.streams)
        self._listing: ShardListing | None = None
        self.leased = leased
        self.lives = lives

    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, list shards, and read the group's documents.

        Raises: ConfigurationError if the sink keeps positions itself; StateError if stored documents cannot be used, or if other processes
        run another job (E10); StreamNotFoundError if a stream does not exist; KinesisError if a call fails.
        """
        job = self._job
        with naming_sink(job.sink, "open"):
            opened = await job.sink.open(context)
        if opened is not None:
            reason = "the sink returned positions that it keeps, and cannot hand them from process to process yet"
            raise ConfigurationError(SHARD_ASSIGNMENT.key, "ELASTIC", "STATIC for this sink", reason=reason)
        await wait_for_store(self._begin_job, job.settings.store_outages)
        self.leased.on_listed(await job.discovery.list_all())
        starts = await job.starts.pinned(lambda: job.pin_latest(job.streams[0]))
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
        """Join the group. Shards that were read in an earlier run come back with new leases."""
        assert self._listing is not None
        self.lives.start(start_task, self._listing)

    async def discover(self) -> None:
        """List shards when a lease names a shard that this process does not know. Raises: DataLossError if that shard has expired."""
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
        """Add child shards to the table. They are read when this process acquires their leases."""
        self._table.add_listed(children)

    async def on_look(self) -> None:
        """Handle a change of the list of streams.

        The shards of a new stream become leases. The shards of a removed stream remain leases, but no process reads them (E12).
        """
        streams = frozenset(self._job.streams)
        if self._listing is not None and streams - self._looked_at:
            self._listing.list_soon()
        if streams != self._looked_at:
            log.info("the list of streams is now %s", ", ".join(self._job.streams))
        self._looked_at = streams
        self._job.discovery.deleted.intersection_update(streams)
        await self.leased.on_streams()

    def reasons_not_ready(self) -> list[str]:
        """Return why the process is not ready: nothing is written while the group's store does not confirm heartbeats."""
        if self.lives.may_write:
            return []
        return [f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink"]

    async def before_stop(self) -> None:
        """Announce the stop, and continue to read until the other workers know of it.

        They can then take the shards soon after the stop, without waiting for their next look at the group.
        """
        await self.lives.announce()

    async def after_run(self, *, is_cut_off: bool) -> None:
        """Leave the group; the next run joins it again.

        The other workers take the shards at once, even if the run was cut off.
        """
        if is_cut_off:
            await self.lives.seal()
        await self.lives.cancel()

    @property
    def has_others(self) -> bool:
        """Whether the group has other processes."""
        return self.lives.has_others

    async def close(self) -> None:
        """Close the group's store, and the store of the sink's entries."""
        await self._group.store.close()
        if (entries := entries_of(self._job.sink)) is not None:
            await entries.close()

    async def _begin_job(self) -> None:
        store, entries = self._group.store, entries_of(self._job.sink)
        await GroupStore(store).refuse_subtasks()  # the first call may take long: it connects
        if entries is not None:
            await GroupStore(entries).refuse_subtasks()
        if isinstance(self._job.sink, CommittingSink) and await GroupStore(store).read_table() is None:
            await tell_of_others(self._job.sink, store.place)
        await begin_job(store, self._group_job, self._group.settings, self._job.clock)

    async def _end_expired(self, listed: Sequence[Shard], missing: MissingShards) -> None:
        """End shards that no listing shows because they are past retention; each is a gap (S2, S5).

        A shard that is younger than every listed shard is not ended, because the listing is old. A shard of a stream that does not exist is
        not ended either, because the stream was deleted.

        Raises: DataLossError if records were lost and the job does not accept that; StoreUnavailableError if the source cannot be asked.
        """
        places, discovery = [key.rpartition("/") for key in self.leased.unknown], self._job.discovery
        shards = [Shard(stream, shard_id) for stream, _, shard_id in places if stream not in discovery.not_found]
        for stream in discovery.not_found.intersection(stream for stream, _, _ in places):
            discovery.on_deleted(stream)  # otherwise no reader of this process would notice the deletion
        unknown = [shard for shard in shards if not is_listing_older_than(shard, listed)]
        try:
            await missing.check([shard.key for shard in unknown], {shard.stream for shard in unknown})
        except RecordPublisherError as error:
            raise StoreUnavailableError(f"a shard cannot be asked about: {error}") from error
        asked = self.leased.unknown.intersection(shard.key for shard in unknown)
        states = self.leased.states(filter(missing.is_expired, asked))
        if not states:
            return
        lost = data_loss_error(list(states), RestoredState(states))
        if not self._job.settings.accepts_loss:
            raise lost
        log.error("%s; continuing because flink.state.dataloss=CONTINUE", lost)
        self.leased.end_expired(states)

    async def _list_again(self) -> Sequence[Shard]:
        """List all shards.

        Raises: StreamNotFoundError if a stream does not exist; StoreUnavailableError for any other failure, after which the caller tries
        again.
        """
        try:
            return await self._job.discovery.list_all()
        except StreamNotFoundError:
            raise
        except RecordPublisherError as error:
            raise StoreUnavailableError(f"the shards cannot be listed: {error}") from error
