"""The first positions of a group of workers (ELASTIC). A worker that is sealed from the start has them: whoever joins takes its shards."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.leases.documents.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.documents.position_part import PositionKey, PositionPart, StoredPosition
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError

CALL_SECONDS = 30.0
EPOCH = 1
SHARDS_PER_PART = 16
"""DynamoDB stores 400 KB in an item; a position is below 1 KB."""


async def store_as_group(store: ConditionalStore, states: Mapping[str, ShardState]) -> None:
    """Store the states by `Shard.key` as those of a group that has no living worker.

    The lease table is written last: before that there is no group. Raises: StateError when there is a group.
    """
    group, worker = GroupStore(store, CALL_SECONDS), f"import-{secrets.token_hex(8)}"
    if await group.read_table() is not None:
        raise _exists(store)
    positions = {
        PositionKey(shard, EPOCH): StoredPosition(state) for shard, state in states.items() if _is_begun(state)
    }
    keys = sorted(positions)
    parts = [keys[first : first + SHARDS_PER_PART] for first in range(0, len(keys), SHARDS_PER_PART)]
    for number, part in enumerate(parts):
        own = {key: positions[key] for key in part}
        await group.own_part(worker, number).write(PositionPart(worker, is_sealed=True, positions=own))
    await group.own_record(worker).write(WorkerRecord(worker, is_sealed=True, parts=len(parts)))
    leases = {shard: _lease(shard, states, worker) for shard in states}
    try:
        await group.write_table(LeaseTable(EPOCH, worker, leases=leases), None)
    except ConflictError as error:
        await group.delete_worker(worker)
        raise _exists(store) from error


def _is_begun(state: ShardState) -> bool:
    """Whether a worker may read the shard at once: it neither ended nor waits for its parents."""
    return not state.ended and not state.waiting


def _lease(shard: str, states: Mapping[str, ShardState], worker: str) -> Lease:
    state, (stream, _, shard_id) = states[shard], shard.rpartition("/")
    if _is_begun(state):
        return Lease(worker, EPOCH)
    if state.waiting:
        return Lease(parents=tuple(f"{stream}/{parent}" for parent in state.parents))
    children = (key for key, other in states.items() if key.startswith(f"{stream}/") and shard_id in other.parents)
    return Lease(None, EPOCH, ended=True, watermark=state.watermark, children=tuple(children))


def _exists(store: ConditionalStore) -> StateError:
    return StateError(f"{store.place} has a group of workers already: use another flink.state.uri or flink.job.name")
