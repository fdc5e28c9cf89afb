"""Adds and removes the shards of a fetcher as its process acquires and loses leases (GROUP)."""

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
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.properties.job_properties import JOB_WORKERS
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..checkpoints.commits import warn_of_rows_of_other_positions
from ..checkpoints.snapshot import RestoredState
from ..checkpoints.starts import data_loss_error
from ..conditional_store import wait_for_store
from ..dependencies import FetcherDependencies
from ..leases.group_store import GroupStore
from ..leases.lease_table import GroupJob
from ..leases.shard_listing import ShardListing
from ..pipeline.current_worker import CurrentWorker
from ..pipeline.sink_errors import naming_sink
from ..shard_ownership import ShardOwnership, StartTask
from ..shards.discovery import MissingShards
from ..shards.shard_table import ShardTable
from ..sink import CommittingSink, SinkContext, entry_store_of
from ..startup import OpenedJob
from ..watermark_rules import raised_watermark
from ..watermarks import ShardsStatus, WatermarkTracker
from .group_place import ElasticGroup, refuse_positions_in_sink
from .leased_shards import LeasedShards
from .worker_lives import WorkerLives, begin_job

log = logging.getLogger("recordpublisher.fetcher")
LISTING_PAUSE_SECONDS = 1.0
"""Approximate pause before the next listing for a shard that the last one did not show (seconds)."""


class LeasedOwnership(ShardOwnership):
    """Lets this process take part in its group: it joins and leaves the group, and reads the shards whose leases it holds."""

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
            raise ConfigurationError(JOB_WORKERS.key, "GROUP", "ALONE for this sink", reason=reason)
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
        removed, self._looked_at = self._looked_at - streams, streams
        self._job.discovery.deleted.intersection_update(streams)
        await self.leased.on_streams()
        for stream in sorted(removed):
            log.info("%s left the list of streams: it is no longer read", stream, extra=about(stream))

    def reasons_not_ready(self) -> list[str]:
        """Return why the process is not ready.

        Nothing is written while the group's store does not confirm heartbeats. Nothing is read until the leases of killed workers
        have expired. A process without shards is ready while other workers read: it takes their shards if they fail.
        """
        if not self.lives.may_write:
            return [f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink"]
        if not (silent := self.lives.waits_for):
            return []
        seconds = self._group.settings.duration
        return [
            f"no shard is read: the leases are those of worker {', '.join(silent)}, of which no new heartbeat was seen yet; without one "
            f"they end after {seconds:g} s"
        ]

    async def before_stop(self) -> None:
        """Announce the stop, and continue to read until the other workers know of it.

        They can then take the shards soon after the stop, without waiting for their next read of the group's documents.
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
        if (entries := entry_store_of(self._job.sink)) is not None:
            await entries.close()

    async def _begin_job(self) -> None:
        store = self._group.store
        if await GroupStore(store).read_table() is None:
            if (entries := entry_store_of(self._job.sink)) is not None and entries is not store:
                await refuse_positions_in_sink(GroupStore(entries), store.place)
            if isinstance(self._job.sink, CommittingSink):
                await warn_of_rows_of_other_positions(self._job.sink, store.place)
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


class GroupWatermarkTracker(WatermarkTracker):
    """Owns the highest global watermark that this process knows. Workers report their watermarks with their heartbeats, not here.

    The lease table makes sure that parents are read before their children (E7), so the fetcher treats shards of other workers as finished.
    """

    def __init__(self, current: CurrentWorker) -> None:
        self._current = current
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Return the global watermark of the group. The arguments are not used, because heartbeats report the shards of this worker."""
        return self.current()

    def current(self) -> int | None:
        """Return the highest known global watermark. It never falls, even when a new worker joins in this process (W6)."""
        self._highest = raised_watermark(self._highest, self._current.group_watermark)
        return self._highest

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark that a worker has reported with its last heartbeat."""
        return self._current.group_maximum

    @property
    def worker(self) -> str | None:
        """Name of the worker that is running, or ran last."""
        return self._current.name

    def after_suspension(self) -> None:
        """Withdraw the permission to write until the next heartbeat, because other workers may have replaced this one."""
        self._current.on_suspension()

    @property
    def has_others(self) -> bool:
        """Whether shards of other processes count. They always do, because other workers hold shards."""
        return True
