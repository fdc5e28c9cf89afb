"""Lets a process join and leave its group of workers. If its worker was sealed (declared dead), it joins again with a new worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FencedError,
    StateError,
    StoreUnavailableError,
)
from recordpublisher.publishers.safe_text import few_of

from ..checkpoints.checkpoint_schedule import CheckpointAge
from ..checkpoints.snapshot_format import ANOTHER_PLACE, refuse_other_job, warn_of_other_streams
from ..conditional_store import ConditionalStore, ConflictError, pause_after_conflict
from ..leases.group_counters import GroupCounters
from ..leases.group_store import MAX_ATTEMPTS, GroupStore, MissingPositionsError, read_positions, states_of
from ..leases.heartbeat import LateJoinError
from ..leases.lease_settings import HANDOVER_SECONDS, LeaseSettings
from ..leases.lease_table import GroupJob, LeaseTable
from ..leases.shard_listing import ShardListing
from ..leases.worker import Worker
from ..leases.worker_sealing import LiveWorkerError, seal_all_silent
from ..pipeline.current_worker import CurrentWorker
from ..shard_ownership import StartTask
from ..startup import where_it_begins
from .job_storage import JobStorage
from .leased_shards import LeasedShards
from .positions_with_rows import PositionsWithRows

group_log = logging.getLogger("recordpublisher.group")


class GroupMembership:
    """Runs the worker of this process in its group. If other workers have replaced it, the process joins again with a new worker.

    - `on_drain`: called when a person has asked this process to leave (`recordpublisher group drain`).
    - `on_error`: called with an error that the sink has raised while shards are released. It ends the run with that error, or returns False
      if the run has already ended without an error.
    - `on_advance`: called when the watermark of the group, as this worker knows it, has changed.
    - `handler`: the name of the user's function that the sink calls, or "".
    """

    def __init__(
        self,
        group: JobStorage,
        shards: LeasedShards,
        current: CurrentWorker,
        clock: Clock,
        *,
        job: GroupJob,
        counts: GroupCounters,
        on_drain: Callable[[], None],
        on_error: Callable[[BaseException], bool],
        on_advance: Callable[[], None] = lambda: None,
        handler: str = "",
    ) -> None:
        self._group = group
        self._handler = handler
        self._shards = shards
        self._current = current
        self._clock = clock
        self._job = job
        self._counts = counts
        self._on_drain = on_drain
        self._on_error = on_error
        self._sink_error: asyncio.Future[Exception] | None = None
        """The future with an error of the sink, which `leave` raises. It is None until `leave` is called or such an error occurs."""
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
    def is_joining(self) -> bool:
        """Whether the group has not yet decided with which shards this process begins."""
        return self._current.worker is None or self._current.worker.is_joining

    @property
    def has_others(self) -> bool:
        """Whether the group has other processes that stay in it."""
        return self._current.worker is not None and self._current.worker.has_others

    def start(self, start_task: StartTask, listing: ShardListing) -> None:
        """Join the group. `listing` lists the shards for which the group needs leases."""
        self._is_leaving, self._sink_error = False, None
        self._task = start_task(self._run(listing))

    async def checkpoint(self, *, may_be_partial: bool) -> None:
        """Store how far each shard was written to the sink or, if `may_be_partial`, how far the sink has finished its records.

        A sealed worker can store nothing more: a new worker of this process replaces it, and reads again the records after its stored
        positions.

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
        """Announce that this process will leave, and wait until the other workers have had time to notice it.

        Return at once if no other worker stays, or as soon as the last other worker leaves too.
        """
        worker = self._current.worker
        if worker is None or self._task is None or not await worker.announce():
            return
        until = self._clock.monotonic() + self._group.settings.announce_seconds
        while worker.has_others and not self._task.done() and (left := until - self._clock.monotonic()) > 0:
            await asyncio.wait([self._task], timeout=min(left, HANDOVER_SECONDS))

    async def leave(self) -> None:
        """Store all positions and release all shards, so that other workers need not wait for the leases to expire.

        Raises: StoreUnavailableError if the store does not answer for the lease duration; the errors of the sink, after which `leave` may
        be called again.
        """
        self._is_leaving = True
        if self._task is None:
            return
        self._raise_sink_error()
        failed = self._sink_error = asyncio.get_running_loop().create_future()
        if self._current.worker is not None:
            self._current.worker.leave()
        silent, settings, first = 0.0, self._group.settings, asyncio.FIRST_COMPLETED
        while not (await asyncio.wait([self._task, failed], timeout=settings.interval, return_when=first))[0]:
            silent = 0.0 if self.may_write else silent + settings.interval
            if silent > settings.duration:
                await self.cancel()
                raise StoreUnavailableError(
                    f"{self._group.store.place} does not answer, so the last checkpoint is missing. Other "
                    "processes acquire the shards when their leases have expired"
                )
        self._raise_sink_error()
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
                    "worker %s was replaced (%s). Records after its last stored positions are read again. In the middle of a write or a "
                    "call here: %d",
                    worker.name,
                    error,
                    in_flight,
                )
            except BaseException:
                self._end_life()  # Without heartbeats nothing may be written, so no write should wait for them.
                raise
            else:
                group_log.info("worker %s has left its group", worker.name)
                return

    def _on_sink_error(self, error: Exception) -> None:
        if self._sink_error is None:
            if self._on_error(error):
                return
            # The run was stopped, and `leave` follows. It raises this error, because no later call of the sink may do so.
            self._sink_error = asyncio.get_running_loop().create_future()
        if not self._sink_error.done():
            self._sink_error.set_result(error)

    def _raise_sink_error(self) -> None:
        failed = self._sink_error
        if failed is not None and failed.done():
            self._sink_error = None
            raise failed.result()

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
            positions=self._positions_with_rows(name, documents),
            counts=self._counts,
            on_drain=self._on_drain,
            on_sink_error=self._on_sink_error,
            job=self._job,
            times=self.times,
            is_first=self._is_first,
            on_advance=self._on_advance,
            handler=self._handler,
        )
        group_log.info("worker %s joins its group in %s", name, self._group.store.place)
        self._current.become(worker)
        return worker

    def _positions_with_rows(self, worker: str, documents: GroupStore) -> PositionsWithRows | None:
        if (lives := self._shards.sink_lives) is None:
            return None
        return PositionsWithRows(
            lives,
            self._group.store,
            documents,
            worker,
            job=self._group.job_name or "job",
            clock=self._clock,
            duration=self._group.settings.duration,
        )


async def replace_group_job(
    store: ConditionalStore,
    job: GroupJob,
    settings: LeaseSettings,
    clock: Clock,
    entries: ConditionalStore | None = None,
) -> None:
    """Make `job` the job of the group, if the group has another job and no running workers. Do nothing if there is no group.

    If there are workers that send no heartbeats, wait until their leases have expired.

    - `entries`: the store of positions next to the rows of this job's sink, if it has one.

    Raises: StateError, which names the worker, if a worker is running; StateError if the group has a job with another name;
    MissingPositionsError if this job cannot read the positions of the group; StoreUnavailableError if the store cannot be reached now.
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
            again = await GroupStore(store).read_table()
            if again is not None and again.version != found.version:
                # Another process of the new version may have begun its job while this one waited, and is the worker that was seen.
                await pause_after_conflict(attempt)
                continue
            raise StateError(
                f"this process and the running group of the job differ: {difference}. To change settings, first stop all processes of "
                f"the group: its worker {error.worker} still sends heartbeats to {store.place}. If this is a different job, "
                f"give it {ANOTHER_PLACE}"
            ) from error
        beside_rows = None if entries is None else GroupStore(entries)
        begins = await _where_job_begins(GroupStore(store), beside_rows, found.document, job)
        if begins is None:  # another process has joined in the meantime
            continue
        writer, version = f"start-{secrets.token_hex(8)}", found.document.version + 1
        try:
            await GroupStore(store).write_table(
                replace(found.document, version=version, writer=writer, job=job.named_after(found.document.job)),
                found.version,
            )
        except ConflictError:  # another process has joined in the meantime
            await pause_after_conflict(attempt)
        else:
            before = found.document.job
            # Another destination may be a mistake, such as a changed URI, and this line is then the only trace of it.
            is_elsewhere = before is not None and bool(before.sink) and before.sink != job.sink
            group_log.log(
                logging.WARNING if is_elsewhere else logging.INFO,
                "the group in %s ran another job and has no worker left; this worker begins its own job there, which %s. Difference: %s",
                store.place,
                begins,
                difference,
            )
            warn_of_other_streams((before and before.streams) or (), job.streams or (), store.place)
            return
    raise StateError(
        f"processes with different settings restart the group in {store.place} again and again. Give all of them the "
        "same settings"
    )


async def _where_job_begins(
    group: GroupStore, entries: GroupStore | None, table: LeaseTable, job: GroupJob
) -> str | None:
    """Return, as a clause for the log, where `job` begins, which takes over the shards of `table`.

    Return None if the table was replaced in the meantime.

    Raises: MissingPositionsError, which names the sink of the group's last job, if positions of shards are not found.
    """
    if table.alone is not None:  # Its positions were looked for before.
        return "continues at its stored positions"
    records = await group.read_records(consistent=True)
    found = {
        owner: await read_positions(group, entries, records[owner].document)
        for owner in table.owners
        if owner in records
    }
    _, missing = states_of(table, found)
    if not missing:
        # A shard whose position was reset to a time has been owned too, and begins there.
        known = [shard for shard, lease in table.leases.items() if lease.was_owned or lease.ended]
        count = sum(map(job.reads, known))
        others = len(known) - count
        return where_it_begins(count, None, table.start, job.name, is_latest=table.is_latest, others=others)
    again = await group.read_table()
    if again is None or again.document.version != table.version:
        return None
    raise MissingPositionsError.of(few_of(sorted(missing)), group.place, table.job)
