"""Adds shards to a fetcher and removes them as its process acquires and loses their leases (GROUP)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FencedError,
    RecordPublisherError,
    StateError,
    StoreUnavailableError,
    StreamNotFoundError,
)
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.properties.job_properties import JOB_WORKERS
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..checkpointer import Checkpointer, Snapshotter
from ..checkpoints.commits import CheckpointAge, CommitCounts, tell_of_others
from ..checkpoints.snapshot import ANOTHER_PLACE, RestoredState, refuse_other_job
from ..checkpoints.starts import data_loss_error
from ..conditional_store import ConditionalStore, ConflictError, pause, wait_for_store
from ..dependencies import FetcherDependencies
from ..leases.group_observer import LiveWorkerError, seal_all_silent
from ..leases.group_store import MAX_ATTEMPTS, GroupStore
from ..leases.heartbeat import LateJoinError
from ..leases.lease_counts import LeaseCounts
from ..leases.lease_settings import HANDOVER_SECONDS, LeaseSettings
from ..leases.lease_table import GroupJob
from ..leases.shard_listing import ShardListing
from ..leases.worker import Worker
from ..pipeline.dead_letters import naming_sink
from ..pipeline.process_suspension import SuspensionDetector
from ..pipeline.reading import CurrentWorker
from ..shard_ownership import ShardOwnership, StartTask
from ..shards.shard_table import MissingShards, ShardTable
from ..sink import CommittingSink, SinkContext, entry_store_of
from ..startup import OpenedJob
from ..watermark_rules import raised
from ..watermarks import ShardsStatus, WatermarkTracker
from .committed_positions import CommittedPositions
from .group_place import ElasticGroup, refuse_entries
from .leased_shards import LeasedShards


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

        Raises: ConfigurationError if the sink itself keeps positions, which cannot move between processes; StateError if stored documents
        cannot be used, or if other processes run another job (E10); StreamNotFoundError if a stream does not exist; KinesisError if a call
        fails.
        """
        job = self._job
        with naming_sink(job.sink, "open"):
            opened = await job.sink.open(context)
        if opened is not None:
            reason = "the sink stores positions itself, and one process cannot give them to another"
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
        """Join the group. Shards that an earlier run has read are read again only with new leases."""
        assert self._listing is not None
        self.lives.start(start_task, self._listing)

    async def discover(self) -> None:
        """List shards whenever a lease names a shard that this process does not know yet.

        Raises: DataLossError if that shard is past retention, records of it were lost, and the job does not accept that.
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

    async def on_look(self) -> None:
        """Handle a change of the list of streams.

        The shards of a new stream get leases. The shards of a removed stream keep theirs, but no process reads them (E12).
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
        """Return why nothing is read or written, as sentences for people; an empty list if the process is ready.

        Nothing is written while the group's store does not confirm heartbeats. Nothing is read until the leases of killed workers have
        expired. A process without shards is ready while other workers read, because it acquires their shards if they fail.
        """
        if not self.lives.may_write:
            return [f"{self._group.store.place} has not confirmed a heartbeat: nothing is written to the sink"]
        if not (silent := self.lives.waits_for):
            return []
        seconds = self._group.settings.duration
        return [
            f"no shard is read yet: the leases belong to worker {', '.join(silent)}, of which no new heartbeat was seen; without one "
            f"they end after {seconds:g} s"
        ]

    async def before_stop(self) -> None:
        """Announce that this process stops, and continue to read until the other workers know of it.

        They can then acquire the shards soon after the stop, without waiting for their next read of the group's documents.
        """
        await self.lives.announce()

    async def after_run(self, *, is_cut_off: bool) -> None:
        """Leave the group. The next run joins it again.

        Other workers acquire the shards at once, even if an error or the drain timeout has ended the run.
        """
        if is_cut_off:
            await self.lives.seal()
        await self.lives.cancel()

    @property
    def has_others(self) -> bool:
        """Whether the group has other processes that continue to read."""
        return self.lives.has_others

    async def close(self) -> None:
        """Close the group's store, and the store next to the sink's rows if there is one."""
        await self._group.store.close()
        if (entries := entry_store_of(self._job.sink)) is not None:
            await entries.close()

    async def _begin_job(self) -> None:
        store = self._group.store
        if await GroupStore(store).read_table() is None:
            if (entries := entry_store_of(self._job.sink)) is not None and entries is not store:
                await refuse_entries(GroupStore(entries), store.place)
            if isinstance(self._job.sink, CommittingSink):
                await tell_of_others(self._job.sink, store.place)
        await begin_job(store, self._group_job, self._group.settings, self._job.clock)

    async def _end_expired(self, listed: Sequence[Shard], missing: MissingShards) -> None:
        """End shards that are past retention and that no listing shows; each is a gap in the records (S2, S5).

        A shard that is younger than every listed shard is not ended: it is missing because the listing is old. A shard of a stream that
        does not exist is not ended either: it is missing because the stream was deleted.

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
            raise StoreUnavailableError(f"it is not known whether a shard still exists: {error}") from error
        asked = self.leased.unknown.intersection(shard.key for shard in unknown)
        states = self.leased.states(filter(missing.is_expired, asked))
        if not states:
            return
        lost = data_loss_error(list(states), RestoredState(states))
        if not self._job.settings.accepts_loss:
            raise lost
        log.error("%s; the job continues because flink.state.dataloss=CONTINUE", lost)
        self.leased.end_expired(states)

    async def _list_again(self) -> Sequence[Shard]:
        """List all shards.

        Raises: StreamNotFoundError if a stream does not exist; StoreUnavailableError for any other failure, so that the caller tries again.
        """
        try:
            return await self._job.discovery.list_all()
        except StreamNotFoundError:
            raise
        except RecordPublisherError as error:
            raise StoreUnavailableError(f"the shards cannot be listed: {error}") from error


class GroupTracker(WatermarkTracker):
    """Provides the global watermark of the group, from what all workers state in their heartbeats.

    It never falls. The lease table makes sure that parents are read before their children (E7), so the fetcher treats shards of other
    workers as finished.
    """

    def __init__(self, current: CurrentWorker) -> None:
        self._current = current
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Return the global watermark of the group. The arguments are not used, because heartbeats report how the shards of this worker
        count.
        """
        return self.current()

    def current(self) -> int | None:
        """Return the highest global watermark that this process knows. It does not fall when a new worker joins in this process (W6)."""
        self._highest = raised(self._highest, self._current.group_watermark)
        return self._highest

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of a shard that any worker has stated in its last heartbeat."""
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
        """Whether shards of other processes count. Always True, because other workers hold shards."""
        return True


# LeaseCheckpointer stores positions with the leases of a group. A job that runs alone stores a snapshot instead.


class LeaseCheckpointer(Checkpointer):
    """Takes the checkpoints of a worker of a group."""

    def __init__(
        self,
        lives: WorkerLives,
        snapshotter: Snapshotter,
        suspension: SuspensionDetector,
        commit_counts: CommitCounts | None,
    ) -> None:
        self._lives = lives
        self._snapshotter = snapshotter
        self._suspension = suspension
        self.times = lives.times
        self.commit_counts = commit_counts

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, store how far each shard was emitted (written to the sink), and return a snapshot of it."""
        await self._lives.checkpoint(may_be_partial=False)
        return self._snapshotter.snapshot()

    async def take_first(self) -> None:
        """Do nothing: the lease table of the group already has the position at which the job starts."""

    async def take_periodic(self) -> None:
        """Take a checkpoint. If it fails, the next one tries again.

        While it fails, the worker continues to read, but writes nothing unless a heartbeat is confirmed (E9).
        """
        await self._take(may_be_partial=True)

    async def _take(self, *, may_be_partial: bool) -> None:
        try:
            await self._lives.checkpoint(may_be_partial=may_be_partial)
        except StoreUnavailableError as error:
            log.warning("a checkpoint was not stored; the next one tries again: %s", error)
        except FencedError as error:
            log.warning("a checkpoint was not stored; the process continues as a new worker: %s", error)

    async def take_last(self, *, is_stopped: bool) -> None:
        """Take the last checkpoint and leave the group.

        Until then the worker still notices when the process was suspended, because the sink may write from its queue, and must not after
        another worker has acquired the shards.
        """
        self._suspension.reset()
        watching = asyncio.create_task(self._suspension.run())
        try:
            if not is_stopped:
                await self._take(may_be_partial=False)
            await self._lives.leave()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


log = logging.getLogger("recordpublisher.fetcher")
LISTING_PAUSE_SECONDS = 1.0
"""Approximate pause before the next listing, if the last one lacks a shard whose lease this process holds (seconds)."""


# Takes part in the group of processes. If other workers have sealed this process's worker (declared it dead), the process continues as a
# new worker (E1).

group_log = logging.getLogger("recordpublisher.group")


async def begin_job(store: ConditionalStore, job: GroupJob, settings: LeaseSettings, clock: Clock) -> None:
    """Make `job` the job of the group, if the group has another job and no process takes part in it. Do nothing if there is no group.

    If there are workers that send no heartbeats, wait until their leases have expired.

    Raises: StateError, with the worker's name, if a worker is running; StateError if the group has a job with another name;
    StoreUnavailableError if the store cannot be reached now.
    """
    for attempt in range(MAX_ATTEMPTS):
        found = await GroupStore(store).read_table()
        if found is not None and found.document.job is not None:
            refuse_other_job(store.place, found.document.job.name, job.name)
        difference = None if found is None else job.contradiction(found.document.job)
        if found is None or difference is None:
            return
        try:
            await seal_all_silent(GroupStore(store, settings.interval), settings, clock)
        except LiveWorkerError as error:
            raise StateError(
                f"this process and the running group of the job differ: {difference}. To change settings, stop all processes of the "
                f"group first: its worker {error.worker} in {store.place} sends heartbeats. If this is a different job, give it "
                f"{ANOTHER_PLACE}"
            ) from error
        writer, version = f"start-{secrets.token_hex(8)}", found.document.version + 1
        try:
            await GroupStore(store).write_table(
                replace(found.document, version=version, writer=writer, job=job), found.version
            )
        except ConflictError:  # another process has joined in the meantime
            await pause(attempt)
        else:
            group_log.info(
                "the group in %s ran another job and has no worker left; this worker starts its own job there: %s",
                store.place,
                difference,
            )
            return
    raise StateError(
        f"processes with different settings restart the group in {store.place} again and again. Give all of them the "
        "same settings"
    )


class WorkerLives:
    """The workers that this process is, one after another: if one was replaced, the process joins the group again as a new worker.

    `on_drain` is called when a person has asked this process to leave (`recordpublisher group drain`).
    """

    def __init__(
        self,
        group: ElasticGroup,
        shards: LeasedShards,
        current: CurrentWorker,
        clock: Clock,
        *,
        job: GroupJob,
        counts: LeaseCounts,
        on_drain: Callable[[], None],
        on_advance: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_advance` is called when the watermark of the group, as this worker knows it, has changed."""
        self._group = group
        self._shards = shards
        self._current = current
        self._clock = clock
        self._job = job
        self._counts = counts
        self._on_drain = on_drain
        self._on_advance = on_advance
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False
        self._is_first = True
        """Whether this is the first worker of the process. Only the first worker may replace a worker that runs alone."""
        self.times = CheckpointAge(clock)
        """When checkpoints began and were stored, over all workers of this process, including checkpoints that transfer shards."""

    @property
    def may_write(self) -> bool:
        """Whether a recent heartbeat is confirmed, so that no other process can have replaced the worker."""
        permission = self._current.permission
        return permission is not None and permission.is_given

    @property
    def waits_for(self) -> list[str]:
        """The workers whose leases must expire before any process reads a shard; empty if there are none."""
        return [] if self._current.worker is None else self._current.worker.waits_for

    @property
    def has_others(self) -> bool:
        """Whether the group has other processes that stay in it."""
        return self._current.worker is not None and self._current.worker.has_others

    def start(self, start_task: StartTask, listing: ShardListing) -> None:
        """Join the group.

        `listing`: lists the shards for which the group needs leases.
        """
        self._is_leaving = False
        self._task = start_task(self._run(listing))

    async def checkpoint(self, *, may_be_partial: bool) -> None:
        """Store how far each shard was emitted or, if `may_be_partial`, how far the sink has finished it.

        If the worker was sealed, it can store nothing more. A new worker of this process then replaces it, and reads what it had not stored
        again.

        Raises: FencedError if this worker was replaced; StateError if the positions cannot be stored; the errors of the sink.
        """
        worker = self._current.worker
        if worker is None:
            return
        try:
            await worker.checkpoint(may_be_partial=may_be_partial)
        except FencedError:
            await worker.seal()  # This is not `self._current`, which may be a later worker by now.
            raise

    async def announce(self) -> None:
        """Announce that this process will leave, and wait until the other workers must have noticed (E5).

        Return at once if no other worker stays, and as soon as the last of them leaves too.
        """
        worker = self._current.worker
        if worker is None or self._task is None or not await worker.announce():
            return
        until = self._clock.monotonic() + self._group.settings.announce_seconds
        while worker.has_others and not self._task.done() and (left := until - self._clock.monotonic()) > 0:
            await asyncio.wait([self._task], timeout=min(left, HANDOVER_SECONDS))

    async def leave(self) -> None:
        """Store all positions and release all shards, so that other workers need not wait for the leases to expire.

        Raises: StoreUnavailableError if the store does not answer for the lease duration.
        """
        self._is_leaving = True
        if self._task is None:
            return
        if self._current.worker is not None:
            self._current.worker.leave()
        silent, settings = 0.0, self._group.settings
        while not (await asyncio.wait([self._task], timeout=settings.interval))[0]:
            silent = 0.0 if self.may_write else silent + settings.interval
            if silent > settings.duration:
                await self.cancel()
                raise StoreUnavailableError(
                    f"{self._group.store.place} does not answer, so the last checkpoint is missing. Other "
                    "processes acquire the shards when their leases have expired"
                )
        await self._task

    async def cancel(self) -> None:
        """Cancel the worker without a last checkpoint. Other workers acquire its shards when its leases have expired."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def seal(self) -> None:
        """End the worker without a last checkpoint, and seal it, so that other workers acquire its shards at once."""
        await self.cancel()
        if self._current.worker is not None:
            await self._current.worker.seal()

    async def _run(self, listing: ShardListing) -> None:
        while not self._is_leaving:
            self._end_life()
            worker, is_first = self._join(listing), self._is_first
            self._is_first = False
            try:
                await worker.run()
            except LateJoinError as error:
                self._is_first = (
                    is_first  # This worker was never part of the group, so the next one is still the first.
                )
                group_log.warning(
                    "worker %s could not join in time; the process joins as a new worker: %s", worker.name, error
                )
            except FencedError as error:
                in_flight = self._shards.in_flight
                self._counts.count_replaced(in_flight)
                group_log.warning(
                    "worker %s was replaced: records that it had not stored are read again (writes and calls "
                    "in flight here: %d): %s",
                    worker.name,
                    in_flight,
                    error,
                )
            except BaseException:
                self._end_life()  # Without heartbeats nothing may be written, so no write should wait for them.
                raise
            else:
                group_log.info("worker %s has left its group", worker.name)
                return

    def _end_life(self) -> None:
        if self._current.worker is not None:
            self._current.worker.end()

    def _join(self, listing: ShardListing) -> Worker:
        name = f"{self._group.chance.getrandbits(64):016x}"
        documents = self._group.documents
        worker = Worker(
            name,
            documents,
            self._shards,
            listing,
            self._group.settings,
            self._clock,
            jitter=self._group.chance,
            positions=self._committed_positions(name, documents),
            counts=self._counts,
            on_drain=self._on_drain,
            job=self._job,
            times=self.times,
            is_first=self._is_first,
            on_advance=self._on_advance,
        )
        group_log.info("worker %s joins its group in %s", name, self._group.store.place)
        self._current.become(worker)
        return worker

    def _committed_positions(self, worker: str, documents: GroupStore) -> CommittedPositions | None:
        if (lives := self._shards.sink_lives) is None:
            return None
        return CommittedPositions(
            lives,
            self._group.store,
            documents,
            worker,
            job=self._group.job_name or "job",
            clock=self._clock,
            duration=self._group.settings.duration,
        )
