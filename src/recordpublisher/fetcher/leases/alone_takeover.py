"""Ends a job that runs alone: seals its worker, and adds its positions to the lease table."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from recordpublisher.publishers.errors import StoreUnavailableError

from ..conditional_store import ConflictError
from ..shards.shard_state import ShardState
from .documents.group_store import MAX_ATTEMPTS, GroupStore, PositionPart, WorkerRecord
from .documents.lease_table import AloneOwner, LeaseTable
from .documents.stored_states import alone_states
from .position_store import PositionStore, read_alone_part


async def seal_worker(group: GroupStore, worker: str) -> WorkerRecord:
    """Seal the record of a worker, and return it. A record that was deleted counts as sealed.

    Raises: StoreUnavailableError if the store does not answer, or if the record changes again and again.
    """
    for _ in range(MAX_ATTEMPTS):
        found = await group.read_record(worker)
        if found is None:
            return WorkerRecord(worker, 0, is_sealed=True, parts=1)
        if found.document.is_sealed:
            return found.document
        with contextlib.suppress(ConflictError):
            return await group.seal_record(found)
    raise StoreUnavailableError(f"the record of worker {worker} was written {MAX_ATTEMPTS} times while it was sealed")


async def sealed_alone(
    group: GroupStore, alone: AloneOwner, positions: PositionStore
) -> tuple[Mapping[str, ShardState], PositionPart | None]:
    """Seal the worker that runs alone, first its record and then its part, and return the states of all shards, and the sealed part.

    What a `CommittingSink` has committed there is published. Raises: StoreUnavailableError if the store does not answer; StateError if the
    positions belong to rows in another target.
    """
    record = await seal_worker(group, alone.worker)
    found = await positions.seal(record)  # the positions are read after all is sealed
    return alone_states(found, alone), await read_alone_part(group, positions.entries, alone.worker)


def as_group(folded: LeaseTable, writer: str, first: LeaseTable | None = None) -> LeaseTable:
    """Return the next version, in which workers share the shards.

    - `first`: the first table of a new group, which has the shards if the job that ran alone had not begun any.
    """
    table = replace(folded, version=folded.version + 1, writer=writer, alone=None)
    if first is None or folded.leases:
        return table
    return replace(table, leases=first.leases, start=first.start, is_latest=first.is_latest)
