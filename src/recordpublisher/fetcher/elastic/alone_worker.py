"""A job that runs in one process: its worker owns every shard, and its lease has no deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FencedError,
    PluginError,
    RecordPublisherError,
    StateError,
    StoreUnavailableError,
)
from recordpublisher.publishers.properties.job_properties import JOB_NAME, JOB_WORKERS
from recordpublisher.publishers.safe_text import few_of

from ..checkpoints.committing_calls import CommittingCalls
from ..checkpoints.snapshot_format import checked_snapshot, refuse_other_job, snapshot_to_json
from ..checkpoints.staged_commits import CommitCounts, warn_of_rows_of_other_positions
from ..conditional_store import ConflictError, StoredDocument, pause_after_conflict
from ..leases.group_store import (
    MAX_ATTEMPTS,
    GroupStore,
    MissingPositionsError,
    alone_part_of,
    read_alone_part,
    states_of,
)
from ..leases.lease_table import AloneOwner, GroupJob, LeaseTable
from ..leases.position_documents import PositionKey, Positions, StoredPosition
from ..leases.position_store import PartPositionStore, PositionStore
from ..leases.worker_record import HOST, WorkerRecord
from ..leases.worker_sealing import seal_alone_worker, seal_worker
from ..shards.shard_state import ShardState
from ..sink import CommittingSink, Sink, State, entry_store_of
from .job_storage import JobStorage, refuse_positions_in_sink

if TYPE_CHECKING:
    from .positions_with_rows import AloneSinkLives

log = logging.getLogger("recordpublisher.start")
SEAL_SECONDS = 5.0
"""How long the last write of a worker's record may take when the worker ends (seconds)."""
CONFIRMED_SECONDS = 20.0
"""How long this worker works without a sign that it still owns the shards (seconds). Then it reads its record from the store.

Each stored checkpoint is such a sign.
"""
ABANDONED_START_MS = 86_400_000
"""The documents of a process that never acquired the shards are deleted when they are this old (ms)."""


class AloneWorker:
    """The worker of a process that runs alone: it owns every shard, and stores the positions of all of them.

    While the worker runs, it writes one document, its *part*, which has the positions of all shards. The lease table names the worker and
    has no leases: a reader computes them from the table and the part (`LeaseTable.with_alone_leases`).

    Each write of the part is conditional. If the job is started again, the new process seals the part, and this worker can no longer write
    it.
    """

    def __init__(self, storage: JobStorage, job: GroupJob, sink: Sink, clock: Clock) -> None:
        self._storage = storage
        self._documents = GroupStore(storage.store)
        self._job = job
        self._sink = sink
        self._clock = clock
        self.name = f"{storage.chance.getrandbits(64):016x}"
        self._record = self._documents.own_record(self.name)
        self._rivals = RivalStarts(self._documents, clock, storage.chance)
        self._life: AloneSinkLives | None = None
        if isinstance(sink, CommittingSink):
            from .positions_with_rows import AloneSinkLives  # imported here, because other sinks do not need it

            self._life = AloneSinkLives(sink, clock)
        self._positions = self._position_store()
        self._owner = AloneOwner(self.name, 0)
        self._beat = 0
        self._has_taken = False
        self._confirmed = clock.monotonic()
        self._states: Mapping[str, ShardState] = {}
        self._pinned_ms: int | None = None
        self._taken_ms: int | None = None

    @property
    def counts(self) -> CommitCounts | None:
        """Counts and times of the commits of a `CommittingSink`; None for other sinks."""
        return None if self._life is None else self._life.counts

    @property
    def place(self) -> str:
        """Where the positions are stored, as messages show it."""
        return self._storage.store.place

    async def open(self) -> tuple[int, list[State]]:
        """Acquire every shard. Return the epoch, and a list with the stored snapshot, or an empty list if there are no positions.

        If another worker still runs the job alone, this worker replaces it: at once, or after a pause if that worker has just replaced one
        (`RivalStarts`). The call may be repeated after an error.

        Raises: StateError if a group of workers is running, or if the positions belong to another job or cannot be used;
        StoreUnavailableError if the store cannot be reached now; FencedError if another process has replaced this worker in the meantime.
        """
        for attempt in range(MAX_ATTEMPTS):
            found = await self._documents.read_table()
            table = LeaseTable(0) if found is None else found.document
            if table.alone == self._owner:
                return await self._opened(table)
            running = await self._check(found)
            if await self._rivals.wait(running):
                continue
            # If the previous worker was suspended within a transaction, its database session may hold locks on the documents that this
            # start seals next.
            await self._storage.store.end_sessions("alone")
            if table.alone is not None and isinstance(self._sink, CommittingSink):
                await CommittingCalls(self._sink).end_life(table.alone.worker)
            states = await self._sealed_states(table)
            if states is None:  # the table was replaced in the meantime
                await pause_after_conflict(attempt)
                continue
            after = table.with_alone_owner(self.name, self._job)
            assert after.alone is not None
            self._owner = after.alone
            await self._prepare(states)
            try:
                await self._documents.write_table(after, None if found is None else found.version)
            except ConflictError:
                await pause_after_conflict(attempt)
            else:
                return await self._opened(after)
        raise StateError(
            f"{self.place} cannot be taken over: other processes of this job start again and again. Run only one, or start all with --group"
        )

    async def store(self, state: State) -> None:
        """Store a snapshot of all positions.

        Raises: FencedError if a newer process owns the shards; StateError if the snapshot cannot be stored.
        """
        await self._store(state, is_checkpoint=False)

    async def settle(self) -> None:
        """Find out the outcome of a commit that got no answer, by repeating it.

        Raises: FencedError if a newer process owns the shards; StoreUnavailableError if the store cannot be reached now.
        """
        with self._naming_successor():
            await self._positions.settle()

    async def commit(self, state: dict[str, Any], records: int = 0) -> None:
        """Let the sink stage the written records, and commit them together with `state`, a snapshot of exactly these records.

        No write to the sink may be in progress. `records`: number of records written so far.

        Raises: the errors of `settle` and of the sink.
        """
        assert self._life is not None
        self._life.note_written(records)
        await self._positions.stage()
        await self._store(state, is_checkpoint=True)

    async def publish(self) -> None:
        """Make the committed rows visible.

        Raises: StateError if a staged item is missing; FencedError if a newer process owns the shards.
        """
        await self._positions.publish()

    async def check_owner(self) -> None:
        """Check that this worker still owns the shards. Do nothing if that was confirmed less than `CONFIRMED_SECONDS` ago.

        Raises: FencedError if the job was started again, and the new process has replaced this worker; StateError if the worker's record
        cannot be read.
        """
        if self._clock.monotonic() - self._confirmed >= CONFIRMED_SECONDS:
            await self._confirm()

    async def _confirm(self) -> None:
        record = await self._documents.read_record(self.name)
        if record is None or record.document.is_sealed:
            raise FencedError(
                f"worker {self.name} was replaced (another process has sealed it): "
                f"{_SUCCESSOR.format(place=self.place, workers=JOB_WORKERS.key)}"
            )
        self._confirmed = self._clock.monotonic()

    async def close(self) -> None:
        """Seal this worker's record, and then close the stores. The next process of the job sees at once that the worker has ended.

        The record is sealed in one attempt, and only if the store has answered recently.
        """
        if self._has_taken and self._clock.monotonic() - self._confirmed < CONFIRMED_SECONDS:
            # Limited, because otherwise a store that does not answer would keep the process from ending.
            with contextlib.suppress(RecordPublisherError, TimeoutError):
                async with asyncio.timeout(SEAL_SECONDS):
                    await self._write_record(is_sealed=True)
        await self._storage.store.close()
        if (entries := entry_store_of(self._sink)) is not None and entries is not self._storage.store:
            await entries.close()

    # --- the start -------------------------------------------------------------------------------------------------------------

    async def _check(self, found: StoredDocument[LeaseTable] | None) -> WorkerRecord | None:
        """Check that this process may acquire the shards. Return the record of the worker that runs alone, or None if there is none.

        If there are workers of a group that send no heartbeats, wait until their leases have expired.

        Raises: StateError if a worker of a group sends heartbeats, or if the positions belong to another job; ConfigurationError if the
        positions were committed together with rows of another sink.
        """
        entries = entry_store_of(self._sink)
        if found is None:
            if entries is not None:
                await refuse_positions_in_sink(self._storage.store, entries)
            if isinstance(self._sink, CommittingSink):
                await warn_of_rows_of_other_positions(self._sink, self.place)
            return None
        if found.document.job is not None:
            refuse_other_job(self.place, found.document.job.name, self._job.name)
        await self._check_target(found.document)
        records = await self._documents.read_records(consistent=True)
        if any(not each.document.is_sealed and not each.document.is_alone for each in records.values()):
            # Imported here because few starts need it: only those that find workers of a group.
            from ..leases.worker_sealing import LiveWorkerError, seal_all_silent

            settings = self._storage.settings
            try:
                await seal_all_silent(GroupStore(self._storage.store, settings.interval), settings, self._clock)
            except LiveWorkerError as error:
                raise StateError(
                    f"worker {error.worker} of the group in {self.place} sends heartbeats: stop it, "
                    f"or start with {JOB_WORKERS.key}=GROUP (--group), which shares its shards"
                ) from error
        alone = found.document.alone
        stored = None if alone is None else records.get(alone.worker)
        return None if stored is None else stored.document

    async def _check_target(self, table: LeaseTable) -> None:
        """Check that this process finds the stored positions, and that they belong to the rows in the target of its sink.

        The check comes before any document is sealed, so that a process with the wrong sink does not end a running job.

        Raises: MissingPositionsError if another sink keeps the positions; ConfigurationError if the positions belong to rows in another
        target.
        """
        entries = entry_store_of(self._sink)
        if table.alone is not None:  # raises if another sink has the positions
            await alone_part_of(self._documents, None if entries is None else GroupStore(entries), table)
        if not isinstance(self._sink, CommittingSink):
            return
        target = CommittingCalls(self._sink).target()
        for owner in sorted(table.owners if table.alone is None else {table.alone.worker}):
            part = await read_alone_part(self._documents, None if entries is None else GroupStore(entries), owner)
            if part is not None and part.target not in ("", target):
                reason = (
                    f"the positions in {self.place} belong to rows in {part.target}, so rows in another target would "
                    "begin in the middle"
                )
                again = (
                    f"to begin again use another {JOB_NAME.key}, which has positions of its own, or delete these rows "
                    "and positions"
                )
                raise ConfigurationError("sink", target, f"{part.target}; {again}", reason=reason)

    async def _sealed_states(self, table: LeaseTable) -> Mapping[str, ShardState] | None:
        """Declare the worker of each lease dead (seal it), so that it can store nothing more. Return the last stored state of each shard.

        Return None if the lease table was replaced in the meantime. Raises: StateError if the position of an owned shard is missing.
        """
        self._pinned_ms = table.start.timestamp_ms if table.is_latest else None
        if table.alone is not None:
            states, part = await seal_alone_worker(self._documents, table.alone, self._positions)
            if part is not None:
                self._pinned_ms, self._taken_ms = part.pinned_ms, part.taken_ms
            return states
        found: dict[str, Positions] = {}
        for owner in sorted(table.owners):
            found[owner] = await self._positions.seal(await seal_worker(self._documents, owner))
        states, missing = states_of(table, found)
        if not missing:
            return states
        again = await self._documents.read_table()
        if again is None or again.document.version != table.version:
            return None
        raise MissingPositionsError.of(few_of(sorted(missing)), self.place, table.job)

    async def _prepare(self, states: Mapping[str, ShardState]) -> None:
        """Store the positions, and then the worker's record, before the lease table names this worker."""
        await self._positions.settle()
        await self._positions.join()
        self._positions.set_times(self._pinned_ms, self._taken_ms)
        await self._positions.commit(self._keyed(states))
        await self._write_record()
        self._states = states

    async def _opened(self, table: LeaseTable) -> tuple[int, list[State]]:
        if not self._has_taken:
            self._has_taken = True
            place = (self._positions.entries or self._documents).place
            log.info("worker %s runs alone, with the positions in %s", self.name, place)
            try:
                await self._clean(table)
            except PluginError:  # The store is wrong, and would end the next start.
                raise
            except RecordPublisherError as error:
                log.warning(
                    "documents of former workers in %s could not be deleted; the next start tries again: %s",
                    self.place,
                    error,
                )
        snapshot = snapshot_to_json(self._states, self._pinned_ms, table.version, taken_ms=self._taken_ms)
        return table.version, [snapshot] if self._states else []

    async def _clean(self, table: LeaseTable) -> None:
        """Delete the documents of dead (sealed) workers, and of processes that were started and never acquired the shards.

        `table`: the lease table that this worker wrote after it had sealed the other workers. It does not name them.
        """
        before = self._clock.now_ms() - ABANDONED_START_MS
        for worker, record in (await self._documents.read_records(consistent=True)).items():
            if worker in table.owners:
                continue
            document = record.document
            if not document.is_sealed:
                if not document.is_alone or (document.sent_ms or 0) > before:
                    continue
                await seal_worker(self._documents, worker)
            if await self._positions.delete(worker):
                await self._documents.delete_worker(worker)

    # --- documents -------------------------------------------------------------------------------------------------------------

    def _position_store(self) -> PositionStore:
        if self._life is None:
            return PartPositionStore(self._documents, self.name, sys.maxsize, self._write_record)
        from .positions_with_rows import PositionsWithRows

        # This worker's lease never expires, so an unanswered commit may be repeated for as long as `flink.job.max.outage` allows.
        return PositionsWithRows(
            self._life,
            self._storage.store,
            self._documents,
            self.name,
            job=self._storage.job_name or "job",
            clock=self._clock,
            duration=float("inf"),
            is_alone=True,
        )

    async def _store(self, state: State, *, is_checkpoint: bool) -> None:
        snapshot = checked_snapshot(state)
        states = {key: stored.state for key, stored in snapshot.shards.items()}
        self._positions.set_times(snapshot.pinned_start_ms, snapshot.taken_ms)
        with self._naming_successor():
            is_written = await self._positions.commit(self._keyed(states), is_checkpoint=is_checkpoint)
        if is_written:
            self._confirmed = self._clock.monotonic()
            return
        # A checkpoint with nothing to write reads the worker's record, so that an idle job also notices that it was replaced.
        try:
            await self._confirm()
        except StoreUnavailableError:
            # If the sink itself stores the positions, commits continue even while the store of the lease table cannot be reached.
            if self._positions.entries is None:
                raise

    def _keyed(self, states: Mapping[str, ShardState]) -> Positions:
        return {PositionKey(shard, self._owner.epoch): StoredPosition(state) for shard, state in states.items()}

    async def _write_record(self, *, is_sealed: bool = False) -> None:
        self._beat += 1
        record = WorkerRecord(
            self.name,
            self._beat,
            parts=self._positions.parts,
            table_version=self._owner.epoch,
            is_sealed=is_sealed,
            is_alone=True,
            host=HOST,
            pid=os.getpid(),
            sent_ms=self._clock.now_ms(),
            replaced_ms=self._rivals.replaced_ms,
        )
        await self._record.write(record)

    @contextmanager
    def _naming_successor(self) -> Iterator[None]:
        try:
            yield
        except FencedError as error:
            raise FencedError(
                f"worker {self.name} was replaced: {_SUCCESSOR.format(place=self.place, workers=JOB_WORKERS.key)} ({error})"
            ) from error


_SUCCESSOR = (
    "the job was started again, or its positions in {place} were reset. The newer start reads the records after the last stored "
    "positions again. Processes that should share the shards need {workers}=GROUP"
)


# RivalStarts delays a start that would replace another one, if two supervisors run the same job alone, and replace each other's starts.

RIVAL_WINDOW_SECONDS = 60.0
"""If a worker has replaced another one within this time, the next process waits before it replaces that worker (seconds).

It waits for up to the same time. The clocks of the processes are compared.
"""
RIVAL_POLL_SECONDS = 5.0
"""Seconds between two reads of the running worker's record while a new process waits for that worker to end."""


class RivalStarts:
    """Decides how long a start (a new process of the job) waits before it replaces the worker that runs the job alone.

    A start that replaces a worker stores the time in its own worker record (`replaced_ms`), if that worker may be running. If a start finds
    a worker that has replaced another one within the last minute, two supervisors probably start the same job again and again. The start
    then waits until that worker has ended, at most a minute.
    """

    def __init__(self, documents: GroupStore, clock: Clock, chance: random.Random) -> None:
        self._documents = documents
        self._clock = clock
        self._chance = chance
        self._until: float | None = None
        self.replaced_ms: int | None = None

    async def wait(self, found: WorkerRecord | None) -> bool:
        """Wait if this start and the worker that it found probably replace each other in turn.

        Return whether this start has waited. It then has to read the lease table again, because the table may have changed.

        - `found`: the record of the worker that runs alone, or None if there is none.

        Raises: StoreUnavailableError if the store does not answer; StateError if the record cannot be read.
        """
        self.replaced_ms = None
        if found is None or not _may_be_running(found):
            return False
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self.replaced_ms = now_ms
        if found.replaced_ms is None or abs(now_ms - found.replaced_ms) >= RIVAL_WINDOW_SECONDS * 1000:
            return False
        if self._until is None:
            seconds = RIVAL_WINDOW_SECONDS * (0.5 + 0.5 * self._chance.random())
            self._until = now + seconds
            log.error(
                "this start would replace worker %s on %s (process %d), which itself replaced another worker "
                "%.0f s ago. Two supervisors seem to start the same job: stop one of them, or start both with "
                "%s=GROUP (--group). This start waits for up to %.0f s",
                found.worker,
                found.host or "an unknown host",
                found.pid,
                abs(now_ms - found.replaced_ms) / 1000,
                JOB_WORKERS.key,
                seconds,
            )
        if now >= self._until:
            return False
        await self._wait_until_it_ends(found.worker, self._until)
        return True

    async def _wait_until_it_ends(self, worker: str, until: float) -> None:
        while (left := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(RIVAL_POLL_SECONDS, left))
            record = await self._documents.read_record(worker)
            if record is None or not _may_be_running(record.document):
                return


def _may_be_running(record: WorkerRecord) -> bool:
    """Return whether a worker may be running.

    It is not running if it was sealed, or if it ran on this machine and its process has ended.
    """
    return not record.is_sealed and (record.host != HOST or is_process(record.pid))


def is_process(number: int) -> bool:
    """Return whether this machine has a process with this number; True if that cannot be found out."""
    if os.name != "posix":  # On Windows, os.kill would end the process.
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
