"""The first positions of a group of workers (ELASTIC). A worker that is sealed from the start has them: whoever joins takes its shards."""

import secrets
from collections.abc import Mapping

from recordpublisher.fetcher.checkpoints.assignment_kinds import ANOTHER_PLACE
from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition

from .group_store import GroupStore, write_first_table
from .lease_table import Lease, LeaseTable
from .position_part import PositionKey, PositionPart, StoredPosition
from .worker_record import WorkerRecord

FIRST_VERSION = 1
SHARDS_PER_PART = 16
"""DynamoDB stores 400 KB in an item; a position is below 1 KB."""


async def store_as_group(store: ConditionalStore, states: Mapping[str, ShardState]) -> None:
    """Store imported states by `Shard.key` as those of a new group without a living worker.

    The lease table is written last: before that there is no group. Raises: StateError when there is one, or a fixed number of subtasks
    keeps its positions here (E10).
    """
    group, worker = GroupStore(store), f"import-{secrets.token_hex(8)}"
    exists = StateError(f"{store.place} has a group of workers already: use {ANOTHER_PLACE}")
    if await group.read_table() is not None:
        raise exists
    await group.refuse_subtasks()
    positions = {
        PositionKey(shard, FIRST_VERSION): StoredPosition(state) for shard, state in states.items() if _is_begun(state)
    }
    keys = sorted(positions)
    parts = [keys[first : first + SHARDS_PER_PART] for first in range(0, len(keys), SHARDS_PER_PART)]
    for number, part in enumerate(parts):
        own = {key: positions[key] for key in part}
        await group.own_part(worker, number).write(PositionPart(worker, is_sealed=True, positions=own))
    await group.own_record(worker).write(WorkerRecord(worker, is_sealed=True, parts=len(parts)))
    leases = {shard: _lease(shard, states, worker) for shard in states}
    table = LeaseTable(FIRST_VERSION, worker, StartingPosition.trim_horizon(), leases)
    try:
        await write_first_table(group, table)
    except ConflictError as error:
        await group.delete_worker(worker)
        raise exists from error
    except StoreUnavailableError:
        raise  # the table may be there, and name this worker
    except StateError:
        await group.delete_worker(worker)
        raise


def _is_begun(state: ShardState) -> bool:
    """Whether a worker may read the shard at once: it neither ended nor waits for its parents."""
    return not state.ended and not state.waiting


def _lease(shard: str, states: Mapping[str, ShardState], worker: str) -> Lease:
    state, (stream, _, shard_id) = states[shard], shard.rpartition("/")
    if _is_begun(state):
        return Lease(worker, FIRST_VERSION)
    if state.waiting:
        return Lease(parents=tuple(f"{stream}/{parent}" for parent in state.parents))
    children = (key for key, other in states.items() if key.startswith(f"{stream}/") and shard_id in other.parents)
    return Lease(None, FIRST_VERSION, ended=True, watermark=state.watermark, children=tuple(children))
