"""Declares workers dead (seals them): locks their records and their positions, so that they can store nothing more (E3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.safe_text import few_of

from ..conditional_store import ConflictError
from ..shards.shard_state import ShardState
from .group_store import MAX_ATTEMPTS, GroupStore, TableCache, alone_states, read_alone_part
from .lease_settings import LeaseSettings
from .lease_table import AloneOwner
from .position_documents import PositionKey, PositionPart, Positions, StoredPosition
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from .group_observer import GroupObserver
    from .planning import GroupView
    from .position_store import PositionStore

log = logging.getLogger("recordpublisher.group")


async def seal_worker(group: GroupStore, worker: str) -> WorkerRecord:
    """Declare a worker dead by sealing its record: the worker can no longer write the record. Return the record.

    A worker without a record counts as dead. Raises: StoreUnavailableError if the store does not answer, or if the record changes during
    each of `MAX_ATTEMPTS` attempts.
    """
    for _ in range(MAX_ATTEMPTS):
        found = await group.read_record(worker)
        if found is None:
            return WorkerRecord(worker, 0, is_sealed=True, parts=1)
        if found.document.is_sealed:
            return found.document
        with contextlib.suppress(ConflictError):
            return await group.seal_record(found)
    raise StoreUnavailableError(
        f"worker {worker} cannot be sealed (declared dead): it wrote its document during each of {MAX_ATTEMPTS} attempts"
    )


async def seal_silent(observer: GroupObserver, view: GroupView) -> GroupView:
    """Seal (declare dead) the workers that sent no heartbeat for the duration of their lease. Return `view` with the sealed records."""
    sealed: dict[str, WorkerRecord] = {}
    for worker, lease_seconds in observer.silent_workers(view).items():
        try:
            sealed[worker] = await observer.seal(worker)
        # The worker has sent a heartbeat, or another process has declared it dead (sealed it).
        except ConflictError:
            continue
        log.warning(
            "worker %s sent no heartbeat for %g s: it is declared dead, and other workers take its shards",
            worker,
            lease_seconds,
        )
    return replace(view, records={**view.records, **sealed}) if sealed else view


async def seal_all_silent(group: GroupStore, settings: LeaseSettings, clock: Clock) -> GroupView:
    """Seal (declare dead) every worker of a group in which no process should run. Return the group when all workers are sealed.

    A worker is sealed when it has sent no heartbeat for the duration of its lease.

    Raises: LiveWorkerError as soon as a worker sends a heartbeat; StoreUnavailableError if the store does not answer; StateError if a
    document cannot be read.
    """
    # Imported here because a job that runs alone seals workers too, and needs neither heartbeats nor plans.
    from .group_observer import GroupObserver

    observer = GroupObserver(group, TableCache(group, clock), clock, "", settings)
    beats: dict[str, int] = {}
    while True:
        view = await observer.read_group()
        if view is not None:
            now = {name: view.records[name].beat for name in view.unsealed}
            if moving := sorted(name for name, beat in now.items() if beat > beats.get(name, beat)):
                raise LiveWorkerError(moving[0])
            if new := now.keys() - beats.keys():
                log.info(
                    "waiting until the leases of workers that may be running have expired: %s", few_of(sorted(new))
                )
            beats |= now
            view = await seal_silent(observer, view)
            owners = {lease.owner for lease in view.table.leases.values()} - {None}
            if not view.unsealed and owners <= view.records.keys():
                return view
        await asyncio.sleep(settings.interval / 2)


class LiveWorkerError(Exception):
    """A worker sends heartbeats, so the group is running. `worker`: the name of that worker."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


async def seal_alone_worker(
    group: GroupStore, alone: AloneOwner, positions: PositionStore
) -> tuple[Mapping[str, ShardState], PositionPart | None]:
    """Seal the worker that runs alone: it can then store nothing more. Return its shards' states, and the document with its positions.

    The document is None if there is none. Rows that a `CommittingSink` has committed with these positions become visible.

    Raises: StoreUnavailableError if the store does not answer; StateError if the rows of these positions are in another target
    (`CommittingSink.target`).
    """
    record = await seal_worker(group, alone.worker)
    # Positions are final from here on, because a sealed worker can store nothing more.
    found = await positions.seal(record)
    return alone_states(found, alone), await read_alone_part(group, positions.entries, alone.worker)


async def seal_parts(group: GroupStore, record: WorkerRecord) -> Positions:
    """Seal all parts of a worker (documents with positions), so that it can no longer write them. Return the positions."""
    found: dict[PositionKey, StoredPosition] = {}
    for number in range(record.parts):
        part = await seal_part(group, record.worker, number)
        found |= {} if part is None else part.positions
    return found


async def seal_part(group: GroupStore, worker: str, number: int) -> PositionPart | None:
    """Seal one part of a worker (a document with positions), and return it. Return None if there is no such part.

    Raises: StoreUnavailableError if the part changes during each of `MAX_ATTEMPTS` attempts.
    """
    for _ in range(MAX_ATTEMPTS):
        part = await group.read_part(worker, number)
        if part is None or part.document.is_sealed:
            return None if part is None else part.document
        sealed = replace(part.document, write=part.document.write + 1, is_sealed=True)
        with contextlib.suppress(ConflictError):
            await group.seal_part(sealed, number, part.version)
            return sealed
    raise StoreUnavailableError(
        f"the positions (part {number}) of worker {worker} cannot be locked against its further writes: they changed during each of "
        f"{MAX_ATTEMPTS} attempts"
    )
