"""ElasticFetcher: a fetcher whose shards come and go with the leases of its worker."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import (
    ConfigurationError,
    FencedError,
    RecordPublisherError,
    StoreUnavailableError,
    StreamNotFoundError,
)
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT
from recordpublisher.publishers.shards import Shard

from ..dependencies import FetcherDependencies
from ..leases.documents.group_store import GroupStore
from ..leases.shard_listing import ShardListing
from ..pipeline.bounds import BoundedResult, Bounds
from ..pipeline.lease_gate import CurrentWorker
from ..pipeline.termination import TerminationCondition
from ..shards.missing_shards import MissingShards
from ..startup import OpenedJob
from ..subtask_fetcher import SubtaskFetcher
from .group_entry import begin_job, job_of
from .group_tracker import GroupTracker
from .leased_shards import LeasedShards
from .worker_lives import ElasticGroup, WorkerLives

log = logging.getLogger("recordpublisher.fetcher")
LISTING_PAUSE_SECONDS = 1.0
"""About how long to wait before another listing for a shard that the last one did not show."""


class ElasticFetcher(SubtaskFetcher):
    """Owns the part of this process in its group. Positions are stored with the leases and not as the snapshot of a subtask."""

    def __init__(self, dependencies: FetcherDependencies, group: ElasticGroup, current: CurrentWorker) -> None:
        super().__init__(dependencies, current)
        self._group = group
        self.current = current
        self._looked_at = frozenset(dependencies.streams)
        self._job = job_of(dependencies.streams, dependencies.sink, group.job_name)
        self._is_open = False
        self.leased = LeasedShards(
            self._shards, self._snapshotter, dependencies.sink, dependencies.clock, dependencies.streams
        )

    async def open(self) -> None:
        """Open the sink, list shards, and look at the group.

        Raises: ConfigurationError for a sink that keeps positions, StateError, also while others do another job (E10), StreamNotFoundError,
        KinesisError.
        """
        dependencies = self._dependencies
        context = dependencies.sink_context(self._checkpoint_scheduler.request, self._shards.emitter.wake)
        context = replace(context, may_write=self._shards.gate.may_write_now, is_elastic=True)
        context = await self._shards.bad_records.open(context)
        if await dependencies.sink.open(context) is not None:
            reason = "the sink returned positions that it keeps, and cannot hand them from process to process yet"
            raise ConfigurationError(SHARD_ASSIGNMENT.key, "ELASTIC", "STATIC for this sink", reason=reason)
        await GroupStore(self._group.store).refuse_subtasks()  # the first call may take long: it connects
        await begin_job(self._group.store, self._job, self._group.settings, dependencies.clock)
        self.leased.on_listed(await dependencies.discovery.list_all())
        start = await self._start()
        self._shards.gaps.pin(start.timestamp_ms)
        self._snapshotter.resume_from(OpenedJob((), {}, start, start.timestamp_ms, generation=1))
        interval = dependencies.settings.discovery_interval_ms / 1000
        self._listing = listing = ShardListing(
            self._list_again,
            MissingShards(dependencies.shard_exists),
            start,
            dependencies.clock,
            interval if interval > 0 else float("inf"),
        )
        self._lives = WorkerLives(
            self._group,
            self.leased,
            listing,
            self.current,
            dependencies.clock,
            job=self._job,
            counts=self._view.leases,
            on_drain=self.stop,
        )
        self._open_monitoring(start)
        self._is_open = True

    async def run_bounded(self, bounds: Bounds) -> BoundedResult:
        """Run until a bound is reached, then leave the group. The next run joins it again. After an error the others take the shards."""
        try:
            return await super().run_bounded(bounds)
        except Exception:
            await self._lives.seal()
            raise
        finally:
            await self._lives.cancel()

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, then store how far each shard was emitted (S6). Raises: FencedError, StateError, SinkError."""
        await self._checkpoint(may_be_partial=False)
        return self.snapshot()

    async def close(self) -> None:
        """Close publishers, sink and the group's store. What the others use stays: the last process of the group releases it."""
        if self._is_open and self._lives.has_others:
            self._dependencies.factory.keep_shared()
        try:
            await super().close()
        finally:
            await self._group.store.close()

    def reasons_not_ready(self) -> list[str]:
        """As for any subtask; and nothing is written while the group's store does not confirm heartbeats."""
        reasons = super().reasons_not_ready()
        if not reasons and not self._lives.may_write:
            reasons.append(f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink")
        return reasons

    def _start_run(self, run: TerminationCondition) -> None:
        super()._start_run(run)
        self._lives.start(self._completion.start_task)

    async def _discover(self) -> None:
        """List shards when a lease names one that this process does not know."""
        while True:
            await self.leased.has_unknown.wait()
            self.leased.has_unknown.clear()
            try:
                self.leased.on_listed(await self._list_again())
            except StoreUnavailableError as error:
                log.warning("%s", error)
                self.leased.has_unknown.set()
            await asyncio.sleep(LISTING_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311 - jitter

    async def _on_look(self) -> None:
        """The shards of a new stream become leases; those of one that left stay leases, which nobody reads (E12)."""
        streams = frozenset(self._dependencies.streams)
        if streams - self._looked_at:
            self._listing.list_soon()
        if streams != self._looked_at:
            log.info("the list of streams is now %s", ", ".join(self._dependencies.streams))
        self._looked_at = streams
        self._dependencies.discovery.deleted.intersection_update(streams)
        await self.leased.on_streams()
        await self._retention.request_missing()

    async def _take_periodic_checkpoint(self) -> None:
        """One that fails is tried again: the worker reads on, and writes nothing without a confirmed heartbeat (E9)."""
        try:
            await self._checkpoint(may_be_partial=True)
        except StoreUnavailableError as error:
            log.warning("a checkpoint was not stored: %s", error)
        except FencedError as error:
            log.warning("a checkpoint was not stored, the worker begins anew under another name: %s", error)

    async def _checkpoint(self, *, may_be_partial: bool) -> None:
        with self._snapshotter.times.measured():
            await self._lives.checkpoint(may_be_partial=may_be_partial)

    async def _before_stop(self) -> None:
        """The shards are read until the others know that they may take them soon: then nobody waits for a look of theirs."""
        await self._lives.announce()

    async def _take_last_checkpoint(self) -> None:
        """The sink may still write from its queue: a suspension is looked for until it has."""
        self._shards.suspension.reset()
        watching = asyncio.create_task(self._shards.suspension.run())
        try:
            await self._lives.leave()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _start(self) -> StartingPosition:
        """Where a new group begins; LATEST becomes a time of the service's clock (P3)."""
        job = self._dependencies
        if job.start.type is not PositionType.LATEST:
            return job.start
        return StartingPosition.at_timestamp(await job.pin_latest(job.streams[0]))

    async def _list_again(self) -> Sequence[Shard]:
        """Raises: StreamNotFoundError; StoreUnavailableError for any other reason, which is tried again."""
        try:
            return await self._dependencies.discovery.list_all()
        except StreamNotFoundError:
            raise
        except RecordPublisherError as error:
            raise StoreUnavailableError(f"the shards cannot be listed: {error}") from error


def elastic_fetcher(dependencies: FetcherDependencies, group: ElasticGroup) -> ElasticFetcher:
    """A fetcher that owns shards by its leases only. No process sees the end of a finite source: others may still read."""
    current = CurrentWorker()
    job = replace(
        dependencies,
        tracker=GroupTracker(current),
        assigner=lambda shard, parallelism: -1,
        is_endless=lambda stream: True,
    )
    return ElasticFetcher(job, group, current)
