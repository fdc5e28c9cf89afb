"""LeasedOwnership: the shards of a fetcher come and go with the leases of its process (ELASTIC)."""

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
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT
from recordpublisher.publishers.shards import Shard

from ..committing_sink import entries_of
from ..conditional_store import wait_for_store
from ..dependencies import FetcherDependencies
from ..leases.documents.group_job import GroupJob
from ..leases.documents.group_store import GroupStore
from ..leases.shard_listing import ShardListing
from ..ownership.shard_ownership import ShardOwnership, StartTask
from ..shards.missing_shards import MissingShards
from ..shards.shard_table import ShardTable
from ..sink import SinkContext
from ..startup import OpenedJob
from .group_entry import begin_job
from .leased_shards import LeasedShards
from .worker_lives import ElasticGroup, WorkerLives

log = logging.getLogger("recordpublisher.fetcher")
LISTING_PAUSE_SECONDS = 1.0
"""About how long to wait before another listing for a shard that the last one did not show."""


class LeasedOwnership(ShardOwnership):
    """Owns the part of this process in its group."""

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
        """Open the sink, list shards, and look at the group.

        Raises: ConfigurationError for a sink that keeps positions, StateError, also while others do another job (E10), StreamNotFoundError,
        KinesisError.
        """
        job = self._job
        if await job.sink.open(context) is not None:
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
        )
        return OpenedJob((), {}, starts, starts.default.timestamp_ms, generation=1)

    def start_run(self, start_task: StartTask) -> None:
        """Join the group. What was read in an earlier run comes with new leases."""
        assert self._listing is not None
        self.lives.start(start_task, self._listing)

    async def discover(self) -> None:
        """List shards when a lease names one that this process does not know."""
        while True:
            await self.leased.has_unknown.wait()
            self.leased.has_unknown.clear()
            try:
                self.leased.on_listed(await self._list_again())
            except StoreUnavailableError as error:
                log.warning("%s", error)
                self.leased.has_unknown.set()
            await asyncio.sleep(LISTING_PAUSE_SECONDS * (0.5 + self._group.chance.random()))

    def add_children(self, children: Iterable[Shard]) -> None:
        """They are read when this process gets their leases."""
        self._table.add_listed(children)

    async def on_look(self) -> None:
        """The shards of a new stream become leases; those of one that left stay leases, which nobody reads (E12)."""
        streams = frozenset(self._job.streams)
        if self._listing is not None and streams - self._looked_at:
            self._listing.list_soon()
        if streams != self._looked_at:
            log.info("the list of streams is now %s", ", ".join(self._job.streams))
        self._looked_at = streams
        self._job.discovery.deleted.intersection_update(streams)
        await self.leased.on_streams()

    def reasons_not_ready(self) -> list[str]:
        """Nothing is written while the group's store does not confirm heartbeats."""
        if self.lives.may_write:
            return []
        return [f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink"]

    async def before_stop(self) -> None:
        """The shards are read until the others know that they may take them soon: then nobody waits for a look of theirs."""
        await self.lives.announce()

    async def after_run(self, *, is_cut_off: bool) -> None:
        """Leave the group; the next run joins it again. The others take the shards at once, also of one that was cut off."""
        if is_cut_off:
            await self.lives.seal()
        await self.lives.cancel()

    @property
    def has_others(self) -> bool:
        """Whether this process is not the last one of its group."""
        return self.lives.has_others

    async def close(self) -> None:
        """Close the group's store, and that of the sink's entries."""
        await self._group.store.close()
        if (entries := entries_of(self._job.sink)) is not None:
            await entries.close()

    async def _begin_job(self) -> None:
        store, entries = self._group.store, entries_of(self._job.sink)
        await GroupStore(store).refuse_subtasks()  # the first call may take long: it connects
        if entries is not None:
            await GroupStore(entries).refuse_subtasks()
        await begin_job(store, self._group_job, self._group.settings, self._job.clock)

    async def _list_again(self) -> Sequence[Shard]:
        """Raises: StreamNotFoundError; StoreUnavailableError for any other reason, which is tried again."""
        try:
            return await self._job.discovery.list_all()
        except StreamNotFoundError:
            raise
        except RecordPublisherError as error:
            raise StoreUnavailableError(f"the shards cannot be listed: {error}") from error
