"""StoreOrGroupPositions: the positions in a state store, of a fixed number of subtasks or of a group of workers (E11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.position_part import PositionKey, StoredPosition
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import StateError

from ..stores.fenced_state_stores import ConditionalStateStore

CALL_SECONDS = 30.0
ATTEMPTS = 5
"""Shards may move from worker to worker while their positions are read; then they are read again."""


class StoreOrGroupPositions:
    """Reads the positions of a job that may be running, and writes nothing."""

    def __init__(self, store: ConditionalStateStore) -> None:
        self._store = store

    async def load(self) -> Sequence[State]:
        """The snapshots of all subtasks, or those of a group. Raises: StateError, StoreUnavailableError."""
        group = await group_snapshots(GroupStore(self._store.conditional_store, CALL_SECONDS))
        return await self._store.load() if group is None else group

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


async def group_snapshots(group: GroupStore) -> list[State] | None:
    """A snapshot for each worker that has shards, with its name as `worker`, and one for the shards that nobody has (None).

    None without a group. Raises: StateError when the position of an owned shard is not where it must be.
    """
    for _ in range(ATTEMPTS):
        table = await group.read_table()
        if table is None:
            return None
        records = {worker: record.document for worker, record in (await group.read_records()).items()}
        states, missing = _states(table.document, await _positions(group, table.document, records))
        if not missing:
            return _snapshots(table.document, states)
    raise StateError(f"the position of {', '.join(missing)} is not stored by the worker that has the lease")


async def _positions(
    group: GroupStore, table: LeaseTable, records: Mapping[str, WorkerRecord]
) -> dict[str, Mapping[PositionKey, StoredPosition]]:
    """What each owner has stored."""
    found: dict[str, Mapping[PositionKey, StoredPosition]] = {}
    for worker in table.owners & records.keys():
        parts = [await group.read_part(worker, number) for number in range(records[worker].parts)]
        found[worker] = {
            key: stored for part in parts if part is not None for key, stored in part.document.positions.items()
        }
    return found


def _states(
    table: LeaseTable, positions: Mapping[str, Mapping[PositionKey, StoredPosition]]
) -> tuple[dict[str, ShardState], list[str]]:
    """The state of each shard of the table, and the shards whose state was not found."""
    states: dict[str, ShardState] = {}
    missing: list[str] = []
    for shard, lease in table.leases.items():
        if lease.ended:
            states[shard] = ShardState(table.start, ended=True, watermark=lease.watermark)
        elif lease.owner is None:
            states[shard] = table.initial_state(shard)
        elif stored := positions.get(lease.owner, {}).get(PositionKey(shard, lease.epoch)):
            states[shard] = stored.state
        else:
            missing.append(shard)
    return states, missing


def _snapshots(table: LeaseTable, states: Mapping[str, ShardState]) -> list[State]:
    by_owner: dict[str | None, dict[str, ShardState]] = {}
    for shard, state in states.items():
        by_owner.setdefault(table.leases[shard].owner, {})[shard] = state
    pinned_ms = table.start.timestamp_ms
    return [
        {**snapshot_to_json(shards, pinned_ms, table.version, 0, 1), "worker": owner}
        for owner, shards in by_owner.items()
    ]
