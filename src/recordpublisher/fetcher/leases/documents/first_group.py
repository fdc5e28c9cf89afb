"""Stores the first positions of a job.

They belong to a worker that is sealed from the start, so any worker that joins can take its shards.
"""

import secrets
from collections.abc import Mapping

from recordpublisher.fetcher.checkpoints.assignment_kinds import ANOTHER_PLACE
from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, Stored
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition

from .group_store import GroupStore
from .lease_table import LeaseTable, is_begun, lease_of
from .position_part import SHARDS_PER_PART, PositionKey, PositionPart, StoredPosition
from .worker_record import WorkerRecord

FIRST_VERSION = 1


async def store_as_group(
    store: ConditionalStore, states: Mapping[str, ShardState], over: Stored[LeaseTable] | None = None
) -> None:
    """Store states by `Shard.key` as the positions of a new group, or of an existing group that no process is in.

    `over` is the lease table of the existing group; None creates a new group. The lease table is written last, because no process uses the
    states before that.

    Raises: StateError if the job has positions already.
    """
    group, worker = GroupStore(store), f"import-{secrets.token_hex(8)}"
    exists = StateError(f"{store.place} has a group of workers already: use {ANOTHER_PLACE}")
    if over is None and await group.read_table() is not None:
        raise exists
    version = FIRST_VERSION if over is None else over.document.version + 1
    positions = {
        PositionKey(shard, version): StoredPosition(state) for shard, state in states.items() if is_begun(state)
    }
    keys = sorted(positions)
    parts = [keys[first : first + SHARDS_PER_PART] for first in range(0, len(keys), SHARDS_PER_PART)]
    for number, part in enumerate(parts):
        own = {key: positions[key] for key in part}
        await group.own_part(worker, number).write(PositionPart(worker, is_sealed=True, positions=own))
    await group.own_record(worker).write(WorkerRecord(worker, 1, is_sealed=True, parts=len(parts)))
    leases = {shard: lease_of(shard, states, worker, version) for shard in states}
    try:
        if over is None:
            await group.write_table(LeaseTable(version, worker, StartingPosition.trim_horizon(), leases), None)
        else:
            await group.write_table(over.document.begun_anew(worker, leases), over.version)
    except ConflictError as error:
        await group.delete_worker(worker)
        raise exists from error
    except StoreUnavailableError:
        raise  # the table may be stored, and name this worker
    except StateError:
        await group.delete_worker(worker)
        raise
