"""Reads and writes the documents of a group in a conditional store."""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition

from ..checkpoints.snapshot import ANOTHER_PLACE, LEASE_TABLE, PARTS
from ..conditional_store import (
    ConditionalStore,
    ConflictError,
    Count,
    Millis,
    Stored,
    VersionedValue,
    WorkerName,
    check_document,
    read_document,
    write_value,
)
from ..shards.shard_state import ShardState, StoredState
from ..sink import CommitNumber, Staged
from . import json_documents
from .lease_table import AloneOwner, GroupJob, LeaseTable, is_begun, lease_of, table_from_bytes, table_to_bytes


def alone_states(positions: Positions, alone: AloneOwner) -> dict[str, ShardState]:
    """Return the state of every shard of a job that runs alone, from the positions of its worker.

    Positions with another epoch belong to a take-over that did not take effect.
    """
    return {key.shard: stored.state for key, stored in positions.items() if key.epoch == alone.epoch}


def states_of(table: LeaseTable, positions: Mapping[str, Positions]) -> tuple[dict[str, ShardState], list[str]]:
    """Return the state of each shard of the table, and the shards whose state was not found.

    - `positions`: the stored positions of each owner.
    """
    states: dict[str, ShardState] = {}
    missing: list[str] = []
    for shard, lease in table.leases.items():
        if lease.ended:
            states[shard] = ShardState(table.start, ended=True, watermark=lease.watermark, seen_ms=lease.seen_ms)
        elif lease.owner is None:
            states[shard] = replace(table.initial_state(shard), waiting=not table.can_be_read(shard))
        elif stored := positions.get(lease.owner, {}).get(PositionKey(shard, lease.epoch)):
            states[shard] = stored.state
        else:
            missing.append(shard)
    return states, missing


MAX_AGE_SECONDS = 60.0


class TableCache:
    """Owns the last table that was read or written, and the time at which it was read.

    `job` is the job of this process. A table that names no job gets it with the next write.

    Every call raises StateError if it finds the table of another job: other processes have begun that job while this process was not in the
    group (E10). The first call that finds or creates a table also raises it if a job alone has begun in the meantime.
    """

    def __init__(self, group: GroupStore, clock: Clock, job: GroupJob | None = None) -> None:
        self._group = group
        self._clock = clock
        self._job = job
        self._stored: Stored[LeaseTable] | None = None
        self._read_at = -math.inf

    @property
    def table(self) -> LeaseTable | None:
        """The newest known table, or None if none was read."""
        return None if self._stored is None else self._stored.document

    @property
    def version(self) -> int:
        """Version of the newest known table; 0 if none was read."""
        return 0 if self._stored is None else self._stored.document.version

    def is_older_than(self, version: int) -> bool:
        """Return whether to read the table again: another worker knows a later version, or a minute has passed."""
        return self.version < version or self._clock.monotonic() - self._read_at > MAX_AGE_SECONDS

    async def read(self) -> LeaseTable | None:
        """Read the table consistently, and return the newest known one."""
        now = self._clock.monotonic()
        found = await self._group.read_table()
        self._adopt(found)
        self._read_at = now
        return self.table

    async def replace(self, table: LeaseTable) -> bool:
        """Write the next version, and return whether this write took effect. If another write was faster, its table is known now.

        Raises: StoreUnavailableError if the outcome is unknown; the table is then read again at the next opportunity.
        """
        if table.version != self.version + 1:
            return False
        if table.job is None:
            table = replace(table, job=self._job)
        read_at, self._read_at = self._read_at, -math.inf
        try:
            written = await self._group.write_table(table, None if self._stored is None else self._stored.version)
        except ConflictError as error:
            if error.current is not None:
                self._adopt(self._group.table_of(error.current))
            self._read_at = read_at
            return False
        self._adopt(written)
        self._read_at = read_at
        return True

    def _adopt(self, stored: Stored[LeaseTable] | None) -> None:
        if stored is not None and stored.document.version > self.version:
            difference = None if self._job is None else self._job.contradiction(stored.document.job)
            if difference is not None:
                raise StateError(f"others have begun another job with the group of this process: {difference}")
            self._stored = stored


# Stores the first positions of a job.  They belong to a worker that counts as dead (sealed) from the start, so any worker that
# joins can take its shards.

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
        raise  # nothing is deleted, because the table may be stored and name this worker
    except StateError:
        await group.delete_worker(worker)
        raise


WORKERS = "group/workers/"
MAX_ATTEMPTS = 10
CALL_SECONDS = 30.0
"""Timeout of a call that no lease waits for (seconds). The first call to a store takes longest, because it connects."""


class GroupStore:
    """Reads and writes a group's documents. Each call takes at most `timeout` seconds; for a worker that is one interval.

    Raises: StoreUnavailableError if the store does not answer, and a write may then take effect now, later, or never; StateError if waiting
    does not help; ConflictError, from writes, if another version is stored.
    """

    def __init__(self, store: ConditionalStore, timeout: float = CALL_SECONDS) -> None:
        self._store = store
        self._timeout = timeout

    @property
    def place(self) -> str:
        """The store's location, as messages show it."""
        return self._store.place

    async def read_table(self) -> Stored[LeaseTable] | None:
        """Return the lease table, read consistently, or None if there is no group here."""
        found = await self._call(self._store.get(LEASE_TABLE))
        return None if found is None else self.table_of(found)

    async def write_table(self, table: LeaseTable, expected: str | None) -> Stored[LeaseTable]:
        """Replace the version `expected`, or create the table if `expected` is None."""
        return Stored(table, await self.write(LEASE_TABLE, table_to_bytes(table), expected))

    def table_of(self, value: VersionedValue) -> Stored[LeaseTable]:
        """Return the lease table that a value contains."""
        return Stored(table_from_bytes(value.value, self._place(LEASE_TABLE)), value.version)

    async def names(self, prefix: str) -> Sequence[str]:
        """Return the names of the documents with this prefix."""
        return await self._call(self._store.list_names(prefix))

    async def read_records(self, *, consistent: bool = False) -> dict[str, Stored[WorkerRecord]]:
        """Return the record of each worker.

        Without `consistent` a record may be slightly old, or even older than at the previous read.
        """
        found = await self._call(self._store.list(WORKERS, consistent=consistent))
        records = (self._record_of(name, value) for name, value in found.items())
        return {record.document.worker: record for record in records}

    async def read_record(self, worker: str) -> Stored[WorkerRecord] | None:
        """Return the record of a worker, read consistently, or None if there is none."""
        name = f"{WORKERS}{worker}"
        found = await self._call(self._store.get(name))
        return None if found is None else self._record_of(name, found)

    async def seal_record(self, record: Stored[WorkerRecord]) -> WorkerRecord:
        """Declare a worker dead (seal it) if its record is still the one that was read, and return the sealed record."""
        sealed = msgspec.structs.replace(record.document, is_sealed=True)
        await self.write(f"{WORKERS}{sealed.worker}", sealed.to_bytes(), record.version)
        return sealed

    def own_record(self, worker: str) -> OwnDocument[WorkerRecord]:
        """Return the record of this worker, for writing."""
        return OwnDocument(self, f"{WORKERS}{worker}", WorkerRecord.from_bytes)

    async def read_part(self, worker: str, number: int) -> Stored[PositionPart] | None:
        """Return a part of a worker's positions, read consistently, or None if there is no such part."""
        name = part_name(worker, number)
        found = await self._call(self._store.get(name))
        return None if found is None else Stored(PositionPart.from_bytes(found.value, self._place(name)), found.version)

    async def seal_part(self, sealed: PositionPart, number: int, expected: str) -> None:
        """Replace a part by its sealed version, which its worker cannot replace, if the part is still the one that was read."""
        await self.write(part_name(sealed.worker, number), sealed.to_bytes(), expected)

    def own_part(self, worker: str, number: int) -> OwnDocument[PositionPart]:
        """Return a part of this worker's positions, for writing."""
        return OwnDocument(self, part_name(worker, number), PositionPart.from_bytes)

    async def delete_worker(self, worker: str) -> None:
        """Delete the parts of a worker declared dead (sealed), and then its record, because only the record leads to the parts."""
        await self.delete_parts(worker)
        await self._call(self._store.delete(f"{WORKERS}{worker}"))

    async def delete_parts(self, worker: str) -> None:
        """Delete the positions (parts) of a worker that was declared dead (sealed)."""
        parts = await self._call(self._store.list_names(f"{PARTS}{worker}/"))
        await self._call(self._store.delete(*parts))

    async def write(self, name: str, content: bytes, expected: str | None) -> str:
        """Write a document, and return its new version."""
        return await self._call(write_value(self._store, name, content, expected))

    def _record_of(self, name: str, value: VersionedValue) -> Stored[WorkerRecord]:
        record = WorkerRecord.from_bytes(value.value, self._place(name))
        if f"{WORKERS}{record.worker}" != name:
            raise StateError(
                f"{self._place(name)} is the record of worker {record.worker!r}: delete it, if no worker of this group has that name"
            )
        return Stored(record, value.version)

    def _place(self, name: str) -> str:
        return f"{name} in {self._store.place}"

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except TimeoutError as error:
            raise StoreUnavailableError(f"{self._store.place} did not answer for {self._timeout:g} s") from error
        except RetriesExhaustedError as error:
            raise StoreUnavailableError(str(error)) from error


T = TypeVar("T")


class SealableDocument(Protocol):
    """A document that other workers may seal (mark as ended), after which it is never written again."""

    @property
    def is_sealed(self) -> bool:
        """Whether the document will never be written again."""

    def to_bytes(self) -> bytes:
        """Return the document as it is stored."""


D = TypeVar("D", bound=SealableDocument)


class OwnDocument(Generic[D]):
    """Owns the stored version of a document that only this worker writes, until another process seals it."""

    def __init__(self, group: GroupStore, name: str, parse: Callable[[bytes, str], D]) -> None:
        self._group = group
        self._name = name
        self._parse = parse
        self._version: str | None = None

    async def write(self, document: D) -> None:
        """Replace the last version of the document; the first write creates it.

        A refused write means that an earlier write of this worker took effect after all. If that was this write, it is done; else it is
        repeated on the stored version.

        Raises: FencedError if the document was sealed or deleted; StoreUnavailableError if the write was refused too often.
        """
        content = document.to_bytes()
        for _ in range(MAX_ATTEMPTS):
            try:
                self._version = await self._group.write(self._name, content, self._version)
            except ConflictError as error:
                if error.current is not None and error.current.value == content:
                    self._version = error.current.version
                    return
                if error.current is None or self._parse(error.current.value, self._name).is_sealed:
                    raise FencedError(
                        f"{self._name} was sealed, because it counted as ended: other workers have the shards of this worker"
                    ) from error
                self._version = error.current.version
            else:
                return
        raise StoreUnavailableError(f"{self._name} was refused {MAX_ATTEMPTS} times")


def part_name(worker: str, number: int) -> str:
    """Return the name of the worker's part with this number."""
    return f"{PARTS}{worker}/{number}"


# The record in which a worker reports about itself with each heartbeat (E2, E3).

HOST = socket.gethostname()[:255]
"""This host, as the records of its workers name it."""
MAX_PARTS = 10_000
"""The most parts that a record may name. With a few shards each, that is far more than a worker can read."""


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=json_documents.FORMAT):
    """The record of one worker. A process that seals the record ends the worker: the record is never written again.

    - `beat`: the number of the heartbeat, which makes each stored value unique.
    - `is_leaving`: the worker releases all shards and takes none.
    - `parts`: number of its position parts. A part is created before the record names it.
    - `table_version`: the newest version of the lease table that the worker knows.
    - `released`: the epoch of each shard that the worker has released, with its last position stored.
    - `watermark`: the lowest watermark of its shards; None if one of them had no record yet.
    - `is_active`: whether at least one of its shards counts for the watermark.
    - `max_watermark`: the highest watermark of its shards (W12).
    - `group_watermark`: the highest watermark of the group that the worker knows (E8).
    - `loads`: the load level of each shard (`planning.py`); a missing shard has the lowest level.
    - `checkpoint_ms`: when the worker stored its last checkpoint, by its clock (epoch ms). It is for people only; no decision
      depends on it.
    - `lease_ms`: the worker's lease duration. It may write to its sink for two thirds of that time after this heartbeat (E4).
    - `is_alone`: the worker runs alone: it sends no heartbeats, and its leases have no deadline.
    - `host`, `pid`: where the worker's process runs, for people.
    - `sent_ms`: when the worker sent this heartbeat, by its clock (epoch ms), for people.
    - `is_held`: whether a shard of the worker has waited for the watermark of the group lately. Then the others state each second
      how far they are, if that has changed (E8).
    - `replaced_ms`: when this worker, which runs alone, replaced one that may have been running, by its clock (epoch ms). None if
      it did not.
    """

    worker: WorkerName
    beat: Count
    is_sealed: bool = msgspec.field(name="sealed", default=False)
    is_leaving: bool = msgspec.field(name="leaving", default=False)
    parts: Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTS)] = 0
    table_version: Count = msgspec.field(name="table", default=0)
    released: json_documents.ByStream = {}
    watermark: Millis | None = None
    is_active: bool = msgspec.field(name="active", default=False)
    max_watermark: Millis | None = msgspec.field(name="maxWatermark", default=None)
    group_watermark: Millis | None = msgspec.field(name="groupWatermark", default=None)
    loads: json_documents.ByStream = {}
    checkpoint_ms: Millis | None = msgspec.field(name="checkpoint", default=None)
    lease_ms: Millis | None = msgspec.field(name="lease", default=None)
    is_alone: bool = msgspec.field(name="alone", default=False)
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""
    pid: Count = 0
    sent_ms: Millis | None = msgspec.field(name="sent", default=None)
    is_held: bool = msgspec.field(name="held", default=False)
    replaced_ms: Millis | None = msgspec.field(name="replaced", default=None)

    def has_released(self, shard: str, epoch: int) -> bool:
        """Return whether the worker has released the shard that it held since this epoch."""
        return json_documents.number_of(shard, self.released) == epoch

    def load_level(self, shard: str) -> int:
        """Return the load level that the worker states for one of its shards."""
        return json_documents.number_of(shard, self.loads) or 0

    def to_bytes(self) -> bytes:
        """Return the record as JSON, without defaults: at most 1 KB for a worker at rest (E2)."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> WorkerRecord:
        """Read a record that `to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
        return read_document(value, cls, place, json_documents.FORMAT)


# The positions of a few shards of one worker, by shard and epoch (E1, E2).


class PositionKey(NamedTuple):
    """A shard (`Shard.key`) in an epoch.

    A worker may have two positions of the same shard: the one that it released, and the one that it prepared for a take (E5).
    """

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far a shard was emitted. With the shard's end it has the parents of each child (E7).

    `is_idle` is stored too, for the next reader of the shard (E8).
    """

    state: ShardState
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_idle: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without values that equal their defaults."""
        children = {"children": self.children} if self.children else {}
        return {**self.state.to_json(), **children, **({"idle": True} if self.is_idle else {})}


Positions = Mapping[PositionKey, StoredPosition]
SHARDS_PER_PART = 16
"""Number of shards in a part, for stores such as DynamoDB that bill whole items.

Positions that did not change should not be in the same item as those that did. An item of DynamoDB has at most 400 KB, and a position less
than 1 KB. Other stores have all positions of a worker in one part.
"""
TIP_MS = 300_000
"""The time of a shard's last read at the tip is stored again only after this time (ms).

That time changes with each read of a shard at rest, and is only compared with retentions of a day and more.
"""


def is_stored(positions: Positions, stored: Positions) -> bool:
    """Return whether these positions need no write, because they equal the stored ones except for times of reads at the tip (E2)."""
    if positions == stored:
        return True
    return positions.keys() == stored.keys() and all(
        _is_same(each.state, stored[key].state)
        and (each.children, each.is_idle) == (stored[key].children, stored[key].is_idle)
        for key, each in positions.items()
    )


def _is_same(state: ShardState, stored: ShardState) -> bool:
    if state.tip_ms is None or stored.tip_ms is None:
        return state == stored
    return state.tip_ms - stored.tip_ms < TIP_MS and replace(state, tip_ms=stored.tip_ms) == stored


def positions_to_json(positions: Positions) -> list[Any]:
    """Return the positions as a plain list, sorted by shard and epoch."""
    return [
        [shard, epoch, stored.to_json()]
        for (shard, epoch), stored in sorted(positions.items(), key=lambda each: each[0])
    ]


def positions_from_json(content: Any, place: str) -> Positions:
    """Read positions that `positions_to_json` wrote. Raises: StateError, with the place, if they cannot be read."""
    return _by_key(check_document(content, list[_Position], place))


class _StoredPosition(StoredState, rename="camel"):
    children: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    idle: bool = False


_Position = tuple[str, Count, _StoredPosition]


def _by_key(positions: Sequence[_Position]) -> Positions:
    return {
        PositionKey(shard, epoch): StoredPosition(stored.state, stored.children, stored.idle)
        for shard, epoch, stored in positions
    }


class _StoredStaged(msgspec.Struct):
    writer: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    content: dict[str, Any]
    before: Any = None

    @property
    def staged(self) -> Staged:
        return Staged(CommitNumber(self.writer, self.n), self.content, before=self.before)


class _StoredPart(msgspec.Struct, kw_only=True):
    worker: WorkerName
    write: Count
    sealed: bool = False
    pinned: Millis | None = None
    taken: Millis | None = None
    alone: bool = False
    staged: list[_StoredStaged] = []
    target: str = ""
    positions: list[_Position]


@dataclass(frozen=True, slots=True)
class PositionPart:
    """A part of a worker's positions. `write` numbers the writes, so that no value is stored twice.

    A sealed part is never written again, except when a commit is taken back. The part of a worker with a `CommittingSink` has two more
    fields:

    - `staged`: the staged items that the part commits.
    - `target`: the target of the sink, where the rows are.

    The part of a worker that runs alone (`is_alone`, with a `CommittingSink`) has the time that replaced LATEST (`pinned_ms`), and the time
    of its checkpoint for people (`taken_ms`, epoch ms).
    """

    worker: str
    write: int = 1
    is_sealed: bool = False
    positions: Positions = field(default_factory=dict)
    staged: Sequence[Staged] = ()
    target: str = ""
    pinned_ms: int | None = None
    taken_ms: int | None = None
    is_alone: bool = False

    def before(self, first: CommitNumber, place: str) -> Positions:
        """Return the positions before a commit that the part names.

        A shard that a worker of a group took after that commit has its position in a later commit. A worker that runs alone takes no shards
        later: a shard without a position before the commit begins at its start again.

        Raises: StateError if the positions cannot be read.
        """
        since = [each for each in self.staged if each.number >= first]
        if self.is_alone:
            return positions_from_json(since[0].before, place)
        known = [*(positions_from_json(each.before, place) for each in since), self.positions]
        return {key: next(each[key] for each in known if key in each) for key in self.positions}

    def to_bytes(self) -> bytes:
        """Return the part as JSON."""
        positions = positions_to_json(self.positions)
        sealed = {"sealed": True} if self.is_sealed else {}
        named = _staged_to_json(self.staged, self.target)
        times = {"pinned": self.pinned_ms, "taken": self.taken_ms, "alone": self.is_alone or None}
        known = {name: value for name, value in times.items() if value is not None}
        content = {"worker": self.worker, "write": self.write, **sealed, **named, **known, "positions": positions}
        return json_documents.to_bytes(content)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> PositionPart:
        """Read a part that `to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
        stored = read_document(value, _StoredPart, place, json_documents.FORMAT)
        staged = tuple(each.staged for each in stored.staged)
        positions, times = _by_key(stored.positions), (stored.pinned, stored.taken, stored.alone)
        return cls(stored.worker, stored.write, stored.sealed, positions, staged, stored.target, *times)


def _staged_to_json(staged: Sequence[Staged], target: str) -> dict[str, Any]:
    """Return the staged items and the target as a plain dict, without empty values."""
    names = [
        {"writer": each.number.writer, "n": each.number.n, "content": each.content}
        | ({} if each.before is None else {"before": each.before})
        for each in staged
    ]
    return {**({"staged": names} if names else {}), **({"target": target} if target else {})}
