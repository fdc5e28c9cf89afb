"""A fixed number of subtasks takes over from a group of workers: end the group, then copy its positions to the subtasks (E10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError

from ..checkpoints.snapshot import snapshot_to_json
from ..checkpoints.state_entries import StateEntry, StoredEntry, entry_name, read_entries, write_entry
from ..conditional_store import ConditionalStore, ConflictError, pause
from ..leases.documents.group_store import MAX_ATTEMPTS, GroupStore, Stored
from ..leases.documents.lease_table import LeaseTable
from ..leases.documents.shard_states import states_of
from ..leases.documents.table_cache import GroupClosedError
from ..leases.documents.worker_record import WorkerRecord
from ..leases.group_observer import LiveWorkerError, seal_all_silent
from ..leases.lease_settings import LeaseSettings
from ..leases.position_store import seal_parts
from ..shards.shard_state import ShardState

log = logging.getLogger("recordpublisher.fetcher")
WRITER = "subtasks"


async def take_over_group(store: ConditionalStore, settings: LeaseSettings, clock: Clock) -> None:
    """Make the store that of a fixed number of subtasks, which go on from the positions of the group. Nothing to do if it is one.

    It may be repeated after a crash at any point, and by many subtasks at once. Raises: StateError, naming a worker that lives.
    """
    takeover = _Takeover(store, settings, clock)
    for attempt in range(MAX_ATTEMPTS):
        try:
            if await takeover.is_done():
                return
        except (ConflictError, GroupClosedError):  # another process was faster, in either direction
            await pause(attempt)
    raise StateError(f"{store.place} cannot be taken over: other processes take it over again and again")


class _Takeover:
    """One attempt after the other; each does the next step from what is stored."""

    def __init__(self, store: ConditionalStore, settings: LeaseSettings, clock: Clock) -> None:
        self._store = store
        self._group = GroupStore(store, settings.interval)
        self._settings = settings
        self._clock = clock

    async def is_done(self) -> bool:
        """Take what steps are left. Raises: ConflictError, GroupClosedError when others have changed something meanwhile."""
        found = await self._group.read_table()
        if found is not None and not found.document.is_closed:
            found = await self._end_group()
        if found is not None and found.document.leases:
            found = await self._move_positions(found)
        return await self._give_back(found)

    # --- end the group -------------------------------------------------------------------------------------------------------

    async def _end_group(self) -> Stored[LeaseTable]:
        """Close the table, after every worker was sealed and the position of each lease was found."""
        try:
            view = await seal_all_silent(self._group, self._settings, self._clock)
        except LiveWorkerError as error:
            raise StateError(
                f"worker {error.worker} of the group in {self._store.place} sends heartbeats: stop all its processes first"
            ) from error
        found = await self._group.read_table()
        if found is None or found.document.version != view.table.version:
            raise GroupClosedError("the lease table has changed")
        await self._states(found.document, view.records)
        return await self._write_table(replace(_next(found.document), is_closed=True), found)

    # --- copy the positions --------------------------------------------------------------------------------------------------

    async def _move_positions(self, closed: Stored[LeaseTable]) -> Stored[LeaseTable]:
        """Store the group's positions as those of subtask 0, in place of all older ones; then delete what the workers have left.

        Other subtasks find theirs there, as after any change of the parallelism.
        """
        table = closed.document
        sealed = {
            name: each.document for name, each in (await self._group.read_records()).items() if each.document.is_sealed
        }
        if table.owners - sealed.keys():
            raise GroupClosedError("the records that were read are older than the table")
        states = await self._states(table, sealed)
        snapshot = snapshot_to_json(states, table.start.timestamp_ms, table.version, 0, 1)
        entries = {entry_name(0): None, **await read_entries(self._store)}
        for name, stored in entries.items():
            await self._replace(name, stored, StateEntry(table.version, 0, snapshot if name == entry_name(0) else None))
        done = await self._write_table(replace(_next(table), leases={}, drained=frozenset()), closed)
        for worker in sorted(sealed):
            await self._group.delete_worker(worker)
        log.info("the positions of %d shards in %s belong to subtasks now", len(states), self._store.place)
        return done

    async def _replace(self, name: str, stored: StoredEntry | None, entry: StateEntry) -> None:
        """Replace an entry from before the group, unless another process has done so."""
        if stored is None or stored.entry.generation < entry.generation:
            await write_entry(self._store, name, entry, None if stored is None else stored.version)

    async def _states(self, table: LeaseTable, records: Mapping[str, WorkerRecord]) -> dict[str, ShardState]:
        """What the owners, who are all sealed, have stored. Raises: StateError when a position is not there."""
        found = {owner: await seal_parts(self._group, records[owner]) for owner in table.owners & records.keys()}
        states, missing = states_of(table, found)
        if missing:
            current = await self._group.read_table()
            if current is None or current.document.version != table.version:
                raise GroupClosedError("another subtask was faster, and has deleted what the workers have left")
            raise StateError(
                f"the position of {', '.join(missing)} is not in {self._store.place}: a sink that keeps positions has it, and STATIC "
                "cannot take it over: take the positions along with `recordpublisher positions`"
            )
        return states

    # --- give the entries back -----------------------------------------------------------------------------------------------

    async def _give_back(self, found: Stored[LeaseTable] | None) -> bool:
        """Give entries back that a group has begun to take over, when it cannot write its table any more."""
        entries = await read_entries(self._store)
        if all(each.entry.taken_at is None for each in entries.values()):
            return True
        newest = max(each.entry.generation for each in entries.values())
        before = LeaseTable(newest, WRITER, is_closed=True) if found is None else found.document
        await self._write_table(_next(before), found)
        # The marks that were read are those of takeovers that cannot succeed any more.
        for name, each in entries.items():
            if each.entry.taken_at is not None:
                await write_entry(self._store, name, each.entry.taken(None), each.version)
        return False

    async def _write_table(self, table: LeaseTable, before: Stored[LeaseTable] | None) -> Stored[LeaseTable]:
        return await self._group.write_table(table, None if before is None else before.version)


def _next(table: LeaseTable) -> LeaseTable:
    return replace(table, version=table.version + 1, writer=WRITER)
