"""The workers and shards of a group, according to its documents at one moment. Nothing is written (E11)."""

from dataclasses import dataclass
from enum import StrEnum

from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.leases.planning import FLOOR_BYTES_PER_SECOND, LEVEL_RATIO, GroupView, weight


class WorkerState(StrEnum):
    """The state of a worker in its group."""

    ACTIVE = "active"
    ASKED_TO_LEAVE = "asked to leave"
    LEAVING = "leaving"
    LEFT = "left"
    SEALED = "sealed"


class LeaseState(StrEnum):
    """The state of a shard's lease: whether a worker reads the shard, or why none does."""

    OWNED = "owned"
    RELEASED = "released"
    FREE = "free"
    WAITS_FOR_PARENTS = "waits for its parents"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The report of a worker about itself.

    - `shards`: number of shards that it holds.
    - `share`: its part of the load of all owned shards, 0 to 1.
    - `heartbeat`: the number of its last heartbeat.
    - `sent_ms`: when that heartbeat was sent, by the worker's own clock (epoch ms). None if it is not known.
    - `host`, `pid`: where its process runs.
    """

    worker: str
    state: WorkerState
    shards: int
    share: float
    heartbeat: int
    sent_ms: int | None = None
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard.

    - `worker`: the worker that holds it.
    - `epoch`: the version of the lease table since which that worker holds it.
    - `load`: bytes per second, as its owner states them. None if the load is 1 KB per second or less.
    - `next_worker`: the worker that the plan moves it to. None if it stays where it is.
    """

    shard: str
    stage: LeaseState
    worker: str | None
    epoch: int
    load: int | None
    next_worker: str | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a whole group. `version` is the version of its lease table."""

    version: int
    workers: tuple[WorkerStatus, ...]
    shards: tuple[ShardStatus, ...]


async def read_view(group: GroupStore) -> GroupView | None:
    """Return the documents of a group, or None if there is no group.

    Raises: StateError if a document cannot be read; StoreUnavailableError if the store cannot be reached now.
    """
    table = await group.read_table()
    if table is None:
        return None
    return GroupView(table.document, {name: each.document for name, each in (await group.read_records()).items()})


def status_of(view: GroupView) -> GroupStatus:
    """Return the status of a group, derived from its documents."""
    plan = view.plan()
    shards = tuple(_shard_status(view, shard, plan.get(shard)) for shard in sorted(view.table.leases))
    return GroupStatus(view.table.version, tuple(_worker_status(view, name) for name in sorted(view.records)), shards)


def _worker_status(view: GroupView, name: str) -> WorkerStatus:
    record = view.records[name]
    state = _worker_state(view, name)
    is_owner = state is not WorkerState.LEFT  # its shards are free, even if there is no worker to take them
    owned = [shard for shard, lease in view.table.leases.items() if is_owner and lease.owner == name]
    loads = {shard: weight(view.load_level(shard)) for shard, lease in view.table.leases.items() if lease.owner}
    share = sum(loads[shard] for shard in owned) / (sum(loads.values()) or 1)
    return WorkerStatus(name, state, len(owned), share, record.beat, record.sent_ms, record.host, record.pid)


def _worker_state(view: GroupView, name: str) -> WorkerState:
    record = view.records[name]
    if record.is_sealed:
        return WorkerState.LEFT if record.is_leaving else WorkerState.SEALED
    if record.is_leaving:
        return WorkerState.LEAVING
    return WorkerState.ASKED_TO_LEAVE if name in view.table.drained else WorkerState.ACTIVE


def _shard_status(view: GroupView, shard: str, planned: str | None) -> ShardStatus:
    lease, level = view.table.leases[shard], view.load_level(shard)
    load = round(FLOOR_BYTES_PER_SECOND * LEVEL_RATIO**level) if level else None
    moves_to = planned if planned != lease.owner else None
    return ShardStatus(shard, _lease_state(view, shard), lease.owner, lease.epoch, load, moves_to)


def _lease_state(view: GroupView, shard: str) -> LeaseState:
    lease = view.table.leases[shard]
    if lease.ended:
        return LeaseState.ENDED
    if not view.table.can_be_read(shard):
        return LeaseState.WAITS_FOR_PARENTS
    if not view.is_free(shard):
        return LeaseState.OWNED
    owner = None if lease.owner is None else view.records.get(lease.owner)
    return LeaseState.RELEASED if owner is not None and not owner.is_sealed else LeaseState.FREE
