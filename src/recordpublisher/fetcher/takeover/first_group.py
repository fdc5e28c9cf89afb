"""The first positions of a group of workers (ELASTIC). A worker that is sealed from the start has them: whoever joins takes its shards."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition

from ..checkpoints.state_store import ANOTHER_PLACE
from ..conditional_store import ConditionalStore, ConflictError
from ..leases.documents.group_store import GroupStore
from ..leases.documents.lease_table import Lease, LeaseTable
from ..leases.documents.position_part import PositionKey, PositionPart, StoredPosition
from ..leases.documents.worker_record import WorkerRecord
from ..shards.shard_state import ShardState

SHARDS_PER_PART = 16
"""DynamoDB stores 400 KB in an item; a position is below 1 KB."""


async def store_as_group(store: ConditionalStore, states: Mapping[str, ShardState]) -> None:
    """Store imported states by `Shard.key` as those of a new group. Raises: StateError when there is one."""
    found = await GroupStore(store).read_table()
    exists = f"{store.place} has a group of workers already: use {ANOTHER_PLACE}"
    if found is not None:
        raise StateError(exists)
    try:
        await store_first_group(store, states, start=StartingPosition.trim_horizon(), version=1, expected=None)
    except ConflictError as error:
        raise StateError(exists) from error


async def store_first_group(
    store: ConditionalStore,
    states: Mapping[str, ShardState],
    *,
    start: StartingPosition,
    version: int,
    expected: str | None,
) -> None:
    """Store the states as those of a group that has no living worker.

    The lease table is written last, if the store's version of it is still the expected one (None: there is no table): before that there is
    no group. Raises: ConflictError.
    """
    group, worker = GroupStore(store), f"import-{secrets.token_hex(8)}"
    positions = {
        PositionKey(shard, version): StoredPosition(state) for shard, state in states.items() if _is_begun(state)
    }
    keys = sorted(positions)
    parts = [keys[first : first + SHARDS_PER_PART] for first in range(0, len(keys), SHARDS_PER_PART)]
    for number, part in enumerate(parts):
        own = {key: positions[key] for key in part}
        await group.own_part(worker, number).write(PositionPart(worker, is_sealed=True, positions=own))
    await group.own_record(worker).write(WorkerRecord(worker, is_sealed=True, parts=len(parts)))
    leases = {shard: _lease(shard, states, worker, version) for shard in states}
    try:
        await group.write_table(LeaseTable(version, worker, start, leases), expected)
    except ConflictError:
        await group.delete_worker(worker)
        raise


def _is_begun(state: ShardState) -> bool:
    """Whether a worker may read the shard at once: it neither ended nor waits for its parents."""
    return not state.ended and not state.waiting


def _lease(shard: str, states: Mapping[str, ShardState], worker: str, epoch: int) -> Lease:
    state, (stream, _, shard_id) = states[shard], shard.rpartition("/")
    if _is_begun(state):
        return Lease(worker, epoch)
    if state.waiting:
        return Lease(parents=tuple(f"{stream}/{parent}" for parent in state.parents))
    children = (key for key, other in states.items() if key.startswith(f"{stream}/") and shard_id in other.parents)
    return Lease(None, epoch, ended=True, watermark=state.watermark, children=tuple(children))
