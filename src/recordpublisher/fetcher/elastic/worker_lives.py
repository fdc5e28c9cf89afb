"""WorkerLives: takes part in the group of processes. A worker that others have sealed goes on as a new one (E1)."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from ..checkpoints.checkpoint_age import CheckpointAge
from ..conditional_store import ConditionalStore
from ..leases.documents.group_job import GroupJob
from ..leases.documents.group_store import GroupStore
from ..leases.heartbeat import LateJoinError
from ..leases.lease_counts import LeaseCounts
from ..leases.lease_settings import LeaseSettings
from ..leases.shard_listing import ShardListing
from ..leases.worker import Worker
from ..ownership.shard_ownership import StartTask
from ..pipeline.lease_gate import CurrentWorker
from .committed_positions import CommittedPositions
from .leased_shards import LeasedShards

log = logging.getLogger("recordpublisher.group")


@dataclass(frozen=True, slots=True)
class ElasticGroup:
    """Where a group keeps its leases and positions, and its times.

    `job_name`: that of the job, if it has one. `chance`: for jitter, and for the names of workers, which are never used again.
    """

    store: ConditionalStore
    settings: LeaseSettings
    job_name: str | None = None
    chance: random.Random = field(default_factory=random.SystemRandom)

    @property
    def documents(self) -> GroupStore:
        """The group's documents. A call waits for an interval at most: a later answer would be of no use."""
        return GroupStore(self.store, self.settings.interval)


class WorkerLives:
    """Owns the worker of this process, one life after the other."""

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
    ) -> None:
        """`on_drain` is called when somebody has asked this process to leave."""
        self._group = group
        self._shards = shards
        self._current = current
        self._clock = clock
        self._job = job
        self._counts = counts
        self._on_drain = on_drain
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False
        self.times = CheckpointAge(clock)
        """Of the checkpoints of all lives, also those of hand-overs."""

    @property
    def may_write(self) -> bool:
        """Whether a heartbeat was confirmed lately."""
        permission = self._current.permission
        return permission is not None and permission.is_given

    @property
    def has_others(self) -> bool:
        """Whether other processes of the group go on."""
        return self._current.worker is not None and self._current.worker.has_others

    def start(self, start_task: StartTask, listing: ShardListing) -> None:
        """Join the group. `listing`: of the shards that the group reads."""
        self._is_leaving = False
        self._task = start_task(self._run(listing))

    async def checkpoint(self, *, may_be_partial: bool) -> None:
        """Store how far each shard was emitted, or is done with.

        Raises: FencedError, StateError, errors of the sink. A worker that is fenced can store nothing more: it is replaced, as when it is
        silent, and what it had not stored is read again.
        """
        worker = self._current.worker
        if worker is None:
            return
        try:
            await worker.checkpoint(may_be_partial=may_be_partial)
        except FencedError:
            await worker.seal()  # and not the current one: this one may have been replaced meanwhile
            raise

    async def announce(self) -> None:
        """Say that this process will leave, and return when the others must have seen it; at once if there are none (E5)."""
        if self._current.worker is not None and self._task is not None and await self._current.worker.announce():
            await asyncio.wait([self._task], timeout=self._group.settings.announce_seconds)

    async def leave(self) -> None:
        """Store all positions and give all shards up: others need not wait for the leases to expire.

        Raises: StoreUnavailableError when the store does not answer for the lease duration.
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
                    f"{self._group.store.place} does not answer: the last checkpoint is missing, and other processes take the shards "
                    "when their leases have expired"
                )
        await self._task

    async def cancel(self) -> None:
        """End the worker as it is. Its leases expire."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def seal(self) -> None:
        """End the worker without a last checkpoint. The others take its shards at once."""
        await self.cancel()
        if self._current.worker is not None:
            await self._current.worker.seal()

    async def _run(self, listing: ShardListing) -> None:
        while not self._is_leaving:
            self._end_life()
            worker = self._join(listing)
            try:
                await worker.run()
            except LateJoinError as error:
                log.warning("worker %s begins anew under another name: %s", worker.name, error)
            except FencedError as error:
                in_flight = self._shards.in_flight
                self._counts.count_replaced(in_flight)
                log.warning(
                    "worker %s was replaced, what it had not stored is read again (writes and calls in flight here: %d): %s",
                    worker.name,
                    in_flight,
                    error,
                )
            except BaseException:
                self._end_life()  # without heartbeats nothing may be written: nobody should wait for it
                raise
            else:
                log.info("worker %s has left its group", worker.name)
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
        )
        log.info("worker %s joins its group in %s", name, self._group.store.place)
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
