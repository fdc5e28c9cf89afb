"""Shows and controls a group of workers from outside: drain or seal a worker, and the status of workers and shards."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..fetcher.conditional_store import ConflictError, StoredDocument, pause_after_conflict
from ..fetcher.leases.group_store import MAX_ATTEMPTS, GroupStore
from ..fetcher.leases.planning import FLOOR_BYTES_PER_SECOND, LEVEL_RATIO, GroupView, weight
from ..fetcher.leases.worker_record import WorkerRecord
from ..publishers.errors import StateError, StoreUnavailableError
from ..publishers.properties.job_properties import LEASE_DURATION
from ..publishers.retry import duration_words

POLL_SECONDS = 1.0
DEFAULT_LEASE_SECONDS = LEASE_DURATION.default / 1000
SEALED = "others have taken its shards, because it sent no heartbeats. Its process, if it continues, joins again as a new worker: end it"


async def drain(group: GroupStore, worker: str) -> None:
    """Ask a worker to leave. It stores its last checkpoint, releases all shards, and ends its process with exit code 0.

    The worker sees the request at its next read of the group, seconds later.

    Raises: StateError if the worker is not in the group; StoreUnavailableError if other processes change the lease table again and again.
    """
    await _unsealed(group, worker)
    writer = f"command-{secrets.token_hex(8)}"
    for attempt in range(MAX_ATTEMPTS):
        table = await group.read_table()
        if table is None:
            raise StateError("the group of workers no longer exists")
        if worker in table.document.drained:
            return
        asked = table.document.with_changes(writer, drained=[worker])
        try:
            await group.write_table(asked, table.version)
        except ConflictError:
            await pause_after_conflict(attempt)
        else:
            await _announce(group, writer, asked.version)
            return
    raise StoreUnavailableError(
        f"another process wrote the lease table during each of {MAX_ATTEMPTS} attempts; try again"
    )


async def seal(group: GroupStore, worker: str) -> None:
    """Declare a worker dead at once. Other workers read its shards from its last checkpoint, and write later records again.

    If its process is running, it joins the group again as a new worker.

    Raises: StateError if the worker is not in the group; StoreUnavailableError if the worker sends a heartbeat during each attempt.
    """
    for attempt in range(MAX_ATTEMPTS):
        record = await _unsealed(group, worker)
        try:
            await group.seal_record(record)
        except ConflictError:  # The worker has sent a heartbeat since its record was read.
            await pause_after_conflict(attempt)
        else:
            return
    raise StoreUnavailableError(
        f"worker {worker} could not be removed, because it sent a heartbeat during each of {MAX_ATTEMPTS} attempts: stop its process, "
        "or try again"
    )


async def wait_until_left(group: GroupStore, worker: str, seconds: float) -> str | None:
    """Wait until the worker has left its group, and return None.

    Return a text that says what to do if it has not left after `seconds`, or if other workers have declared it dead.
    """
    loop = asyncio.get_running_loop()
    beat, beats, interval = 0, 0, DEFAULT_LEASE_SECONDS / 4
    looked = heard = loop.time()
    try:
        async with asyncio.timeout(seconds):
            while (record := (await group.read_records()).get(worker)) is not None:
                if record.document.is_sealed:
                    return None if record.document.is_leaving else SEALED
                looked = loop.time()
                interval = (record.document.lease_ms or 0) / 4_000 or interval
                if record.document.beat != beat:
                    beat, heard, beats = record.document.beat, loop.time(), beats + 1
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        if (away := loop.time() - looked) > interval:
            return f"the group's store has not answered this command for {away:.0f} s"
        silent = loop.time() - heard
        if beats > 1 and silent <= 2 * interval:  # The first heartbeat may have been sent before this command.
            return (
                "it sends heartbeats: it stores its last checkpoint, which waits for its sink, or for others to take its shards. "
                "Wait longer (--wait), or take its shards away (--force)"
            )
        if silent > interval + POLL_SECONDS:
            return (
                f"it has sent no heartbeat for {silent:.0f} s: its process is suspended, cut off from the store, or gone. "
                "If its process continues, it leaves; otherwise other workers take its shards when its leases have "
                "expired. --force takes them away now"
            )
        return f"it was asked {seconds:g} s ago, and receives the request at its next read of the group, within {interval:g} s"
    return None


async def _announce(group: GroupStore, writer: str, version: int) -> None:
    """Tell the workers that the lease table has a new version, so that they read the table again.

    They see the version in the record of `writer`, a worker that does not exist. The record is marked as that of a dead worker (sealed), so
    that the group deletes it.
    """
    await group.own_record(writer).write(WorkerRecord(writer, 1, is_sealed=True, table_version=version))


async def _unsealed(group: GroupStore, worker: str) -> StoredDocument[WorkerRecord]:
    records = await group.read_records()
    if worker not in records or records[worker].document.is_sealed:
        living = sorted(name for name, record in records.items() if not record.document.is_sealed)
        raise StateError(f"worker {worker} is not in the group, whose workers are: {', '.join(living) or 'none'}")
    return records[worker]


# --- the state of a group at one moment, from its documents ---------------------------------------------------------------------------


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
    NOT_READ = "not read"
    """The job does not read this stream now. The lease keeps the position."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of one worker, from its record and the leases of the group. Other workers may have declared it dead (SEALED).

    - `shards`: number of shards that it holds by the lease table, of streams that the job reads.
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


def _ago(sent_ms: int | None, now_ms: int) -> str | None:
    return None if sent_ms is None else f"{duration_words(max(0, now_ms - sent_ms) / 1000)} ago"


WORKER_COLUMNS: Mapping[str, Callable[[WorkerStatus, int], str | None]] = {
    "WORKER": lambda each, _: each.worker,
    "STATE": lambda each, _: each.state,
    "HOST (PROCESS)": lambda each, _: f"{each.host} ({each.pid})" if each.host else None,
    "SHARDS": lambda each, _: str(each.shards),
    "SHARE": lambda each, _: f"{each.share:.0%}",
    "LAST HEARTBEAT": lambda each, now_ms: _ago(each.sent_ms, now_ms),
}
"""The columns of a table of workers. Each function returns a worker's text at the given time (epoch ms), or None for an empty cell."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard, as `recordpublisher group show --json` has it. `SHARD_COLUMNS` are its columns in the text.

    - `worker`: the worker that holds it.
    - `epoch`: the epoch of its lease (`Lease`). Each owner has a higher one. 0 if no worker has held it yet.
    - `load`: bytes per second, as the worker that holds it reports them. None if they are 1,000 or less.
    - `next_worker`: the worker to which the shard is about to move; None if it stays where it is.
    """

    shard: str
    stage: LeaseState
    worker: str | None
    epoch: int
    load: int | None
    next_worker: str | None


def _load_text(shard: ShardStatus) -> str | None:
    """Return the shard's bytes per second as text, or None if no worker holds the shard. Workers report no number up to 1,000."""
    if shard.worker is None:
        return None
    return "at most 1,000" if shard.load is None else f"{shard.load:,}"


SHARD_COLUMNS: Mapping[str, Callable[[ShardStatus], str | None]] = {
    "SHARD": lambda each: each.shard,
    "WORKER": lambda each: each.worker,
    "STATE": lambda each: each.stage,
    "BYTES/S": _load_text,
    "MOVES TO": lambda each: each.next_worker,
}
"""The columns of a table of shards. Each function returns the text for a shard, or None for an empty cell."""


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
    # The shards of a worker that has left are free, even if no other worker has taken them.
    is_owner = state is not WorkerState.LEFT
    read = {shard: lease for shard, lease in view.table.leases.items() if view.table.is_of_job(shard)}
    owned = [shard for shard, lease in read.items() if is_owner and lease.owner == name]
    loads = {shard: weight(view.load_level(shard)) for shard, lease in read.items() if lease.owner}
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
    if not view.table.is_of_job(shard):
        return LeaseState.NOT_READ
    if lease.ended:
        return LeaseState.ENDED
    if not view.table.can_be_read(shard):
        return LeaseState.WAITS_FOR_PARENTS
    if not view.is_free(shard):
        return LeaseState.OWNED
    owner = None if lease.owner is None else view.records.get(lease.owner)
    return LeaseState.RELEASED if owner is not None and not owner.is_sealed else LeaseState.FREE
