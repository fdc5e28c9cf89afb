"""Reads and writes the documents of a group in a conditional store.

Among them are the positions that a command gives to a group before its workers start.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition

from ..checkpoints.snapshot_format import ANOTHER_PLACE, COPY_POSITIONS, LEASE_TABLE, PARTS_PREFIX
from ..conditional_store import (
    ConditionalStore,
    ConflictError,
    StoredDocument,
    VersionedValue,
    write_value,
)
from ..shards.shard_state import ShardState
from .lease_table import (
    AloneOwner,
    GroupJob,
    LeaseTable,
    is_readable,
    lease_from_state,
    table_from_bytes,
    table_to_bytes,
)
from .position_documents import SHARDS_PER_PART, PositionKey, PositionPart, Positions, StoredPosition
from .worker_record import WorkerRecord

WORKERS = "group/workers/"
MAX_ATTEMPTS = 10
CALL_SECONDS = 30.0
"""Default timeout of a call (seconds). The first call to a store takes longest, because it connects."""


class GroupStore:
    """Reads and writes a group's documents. Each call takes at most `timeout` seconds.

    Raises: StoreUnavailableError if the store does not answer (a write may then take effect now, later, or never); StateError if a later
    attempt would fail too; ConflictError, from writes, if another version is stored.
    """

    def __init__(self, store: ConditionalStore, timeout: float = CALL_SECONDS) -> None:
        self._store = store
        self._timeout = timeout

    @property
    def place(self) -> str:
        """The store's location, as messages show it."""
        return self._store.place

    async def read_table(self) -> StoredDocument[LeaseTable] | None:
        """Return the lease table, read consistently. Return None if there is none: no group has begun here."""
        found = await self._call(self._store.get(LEASE_TABLE))
        return None if found is None else self.table_of(found)

    async def write_table(self, table: LeaseTable, expected: str | None) -> StoredDocument[LeaseTable]:
        """Replace the lease table if its stored version is `expected`, or create it if `expected` is None. Return the stored table."""
        return StoredDocument(table, await self.write(LEASE_TABLE, table_to_bytes(table), expected))

    def table_of(self, value: VersionedValue) -> StoredDocument[LeaseTable]:
        """Return the lease table that a stored value contains."""
        return StoredDocument(table_from_bytes(value.value, self._place(LEASE_TABLE)), value.version)

    async def names(self, prefix: str) -> Sequence[str]:
        """Return the names of the documents with this prefix."""
        return await self._call(self._store.list_names(prefix))

    async def read_records(self, *, consistent: bool = False) -> dict[str, StoredDocument[WorkerRecord]]:
        """Return the record of each worker.

        Without `consistent` a record may be slightly old, or even older than at the previous read.
        """
        found = await self._call(self._store.list(WORKERS, consistent=consistent))
        records = (self._record_of(name, value) for name, value in found.items())
        return {record.document.worker: record for record in records}

    async def read_record(self, worker: str) -> StoredDocument[WorkerRecord] | None:
        """Return the record of a worker, read consistently, or None if there is none."""
        name = f"{WORKERS}{worker}"
        found = await self._call(self._store.get(name))
        return None if found is None else self._record_of(name, found)

    async def seal_record(self, record: StoredDocument[WorkerRecord]) -> WorkerRecord:
        """Seal the record of a worker (declare the worker dead), and return the sealed record.

        Raises: ConflictError if the record has changed since it was read.
        """
        sealed = msgspec.structs.replace(record.document, is_sealed=True)
        await self.write(f"{WORKERS}{sealed.worker}", sealed.to_bytes(), record.version)
        return sealed

    def own_record(self, worker: str) -> OwnDocument[WorkerRecord]:
        """Return the document with the record of `worker`, for writing. `worker` must be a worker of this process."""
        return OwnDocument(self, f"{WORKERS}{worker}", WorkerRecord.from_bytes)

    async def read_part(self, worker: str, number: int) -> StoredDocument[PositionPart] | None:
        """Return part `number` of a worker's positions, read consistently, or None if there is none. A part is one document."""
        name = part_name(worker, number)
        found = await self._call(self._store.get(name))
        return (
            None
            if found is None
            else StoredDocument(PositionPart.from_bytes(found.value, self._place(name)), found.version)
        )

    async def read_all_parts(self) -> list[PositionPart]:
        """Return every stored document with positions (part), including those of workers that the lease table does not name."""
        found = await self._call(self._store.list(PARTS_PREFIX, consistent=True))
        return [PositionPart.from_bytes(each.value, self._place(name)) for name, each in found.items()]

    async def seal_part(self, sealed: PositionPart, number: int, expected: str) -> None:
        """Replace part `number` of a worker's positions (one document) by `sealed`. The worker itself can then no longer write it.

        `expected`: the version of the part that was read.

        Raises: ConflictError if the part has changed since it was read.
        """
        await self.write(part_name(sealed.worker, number), sealed.to_bytes(), expected)

    def own_part(self, worker: str, number: int) -> OwnDocument[PositionPart]:
        """Return the document with part `number` of the positions of `worker`, for writing. `worker` must be a worker of this process."""
        return OwnDocument(self, part_name(worker, number), PositionPart.from_bytes)

    async def delete_worker(self, worker: str) -> None:
        """Delete the positions of a dead (sealed) worker, and then its record.

        The record goes last, because it names the documents to delete.
        """
        await self.delete_parts(worker)
        await self._call(self._store.delete(f"{WORKERS}{worker}"))

    async def part_count(self, worker: str) -> int:
        """Return how many documents with positions a worker may have. Used if the worker's record, which states the number, is missing."""
        numbers = [name.rpartition("/")[2] for name in await self.names(f"{PARTS_PREFIX}{worker}/")]
        return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)

    async def delete_parts(self, worker: str) -> None:
        """Delete the documents with positions of a dead (sealed) worker."""
        parts = await self._call(self._store.list_names(f"{PARTS_PREFIX}{worker}/"))
        await self._call(self._store.delete(*parts))

    async def write(self, name: str, content: bytes, expected: str | None) -> str:
        """Write a document, and return its new version.

        `expected`: the version that is stored now, or None if the document does not exist.
        """
        return await self._call(write_value(self._store, name, content, expected))

    def _record_of(self, name: str, value: VersionedValue) -> StoredDocument[WorkerRecord]:
        record = WorkerRecord.from_bytes(value.value, self._place(name))
        if f"{WORKERS}{record.worker}" != name:
            raise StateError(
                f"{self._place(name)} names another worker in its content, {record.worker!r}. If this group has no "
                "worker of the document's name, delete the document"
            )
        return StoredDocument(record, value.version)

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
    """A document that other workers may seal: after that its owner cannot write it again."""

    @property
    def is_sealed(self) -> bool:
        """Whether the document will never be written again."""

    def to_bytes(self) -> bytes:
        """Return the document as it is stored."""


D = TypeVar("D", bound=SealableDocument)


class OwnDocument(Generic[D]):
    """Writes a document that belongs to a worker of this process, until another process seals it.

    Each write is conditional on the stored version.
    """

    def __init__(self, group: GroupStore, name: str, parse: Callable[[bytes, str], D]) -> None:
        self._group = group
        self._name = name
        self._parse = parse
        self._version: str | None = None

    async def write(self, document: D) -> None:
        """Replace the last version of the document. The first write creates it.

        If the stored version is not the expected one, an earlier write that got no answer took effect. Then this write is repeated on the
        stored version.

        Raises: FencedError if the document was sealed or deleted; StoreUnavailableError if it changed during each of `MAX_ATTEMPTS`
        attempts.
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
                        f"{self._name} was sealed: other workers have declared this worker dead and acquire its shards"
                    ) from error
                self._version = error.current.version
            else:
                return
        raise StoreUnavailableError(
            f"{self._name} in {self._group.place} was not written, because it changed during each of {MAX_ATTEMPTS} attempts"
        )


def alone_states(positions: Positions, alone: AloneOwner) -> dict[str, ShardState]:
    """Return the state of each shard of a job that runs alone, from the positions of its worker.

    Positions with another epoch than that of `alone` are ignored: a process has written them and then failed to acquire the shards.
    """
    return {key.shard: stored.state for key, stored in positions.items() if key.epoch == alone.epoch}


def states_of(table: LeaseTable, positions: Mapping[str, Positions]) -> tuple[dict[str, ShardState], list[str]]:
    """Return the state of each shard of the table, and the shards whose state was not found.

    - `positions`: the stored positions of each worker that the table names.
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


class MissingPositionsError(StateError):
    """The stored lease table names workers whose positions are not in the store, for example because the job's last sink keeps them."""

    @classmethod
    def of(cls, what: str, place: str, job: GroupJob | None) -> MissingPositionsError:
        """Return the error, with its remedies.

        - `what`: the worker or the shards whose positions are missing.
        - `place`: where they were looked for.
        - `job`: the job that they belong to, or None if it is not known.
        """
        commands = COPY_POSITIONS.format(source=" with the properties of that sink")
        take_along = f"copy the positions here: {commands} with the present ones (also if this store was restored from an older copy)"
        if job is not None and job.keeps_positions:
            where = f"the job's last sink ({job.sink}) keeps them with its rows. Start with that sink again"
        else:
            where = "if the job's last sink keeps them with its rows, start with that sink again"
        lost = f"If they are lost, restore {place} or those rows from a copy, or begin elsewhere with `recordpublisher positions reset`"
        return cls(f"the positions of {what} are not in {place}: {where}, or {take_along}. {lost}")


MAX_AGE_SECONDS = 60.0


class TableCache:
    """Keeps the newest known lease table, and the time at which it was read.

    `job`: the job of this process. It is written into a table that names no job.

    Every call raises StateError if the table names another job: other processes have begun that job while this process was not in the
    group.
    """

    def __init__(self, group: GroupStore, clock: Clock, job: GroupJob | None = None) -> None:
        self._group = group
        self._clock = clock
        self._job = job
        self._stored: StoredDocument[LeaseTable] | None = None
        self._read_at = -math.inf

    @property
    def place(self) -> str:
        """The store's location, as messages show it."""
        return self._group.place

    @property
    def table(self) -> LeaseTable | None:
        """The newest known table, or None if none was read."""
        return None if self._stored is None else self._stored.document

    @property
    def version(self) -> int:
        """Version of the newest known table; 0 if none was read."""
        return 0 if self._stored is None else self._stored.document.version

    def is_older_than(self, version: int) -> bool:
        """Return whether to read the table again: `version` is later than the known one, or the last read was more than a minute ago."""
        return self.version < version or self._clock.monotonic() - self._read_at > MAX_AGE_SECONDS

    async def read(self) -> LeaseTable | None:
        """Read the table consistently, and return the newest known one, or None if there is none."""
        now = self._clock.monotonic()
        found = await self._group.read_table()
        self._adopt(found)
        self._read_at = now
        return self.table

    async def replace(self, table: LeaseTable) -> bool:
        """Write the next version of the table. Return whether the write took effect.

        If another process was faster, keep the table that it has written, and return False.

        Raises: StoreUnavailableError if the outcome is unknown; the table is then read again at the next opportunity.
        """
        if table.version != self.version + 1:
            return False
        if table.job is None:
            table = replace(table, job=self._job)
        elif not table.job.sink and self._job is not None:
            table = replace(table, job=self._job.named_after(table.job))
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

    def _adopt(self, stored: StoredDocument[LeaseTable] | None) -> None:
        if stored is not None and stored.document.version > self.version:
            difference = None if self._job is None else self._job.contradiction(stored.document.job)
            if difference is not None:
                raise StateError(f"other processes have started another job in the group of this process: {difference}")
            self._stored = stored


# store_as_group stores the first positions of a job. They belong to a worker that counts as dead (sealed) from the start, so any worker
# that joins can acquire its shards.

FIRST_VERSION = 1


async def store_as_group(
    store: ConditionalStore,
    states: Mapping[str, ShardState],
    over: StoredDocument[LeaseTable] | None = None,
    job_name: str | None = None,
) -> None:
    """Store states by `Shard.key` as the positions of a new group, or of an existing group without processes.

    `over` is the lease table of the existing group; None creates a new group. The lease table is written last. Until then no process uses
    the states.

    Raises: StateError if there is a group although `over` is None, or if another process has changed the lease table since `over` was read.
    """
    group, worker = GroupStore(store), f"import-{secrets.token_hex(8)}"
    exists = StateError(f"{store.place} has a group of workers already: use {ANOTHER_PLACE}")
    if over is None and await group.read_table() is not None:
        raise exists
    version = FIRST_VERSION if over is None else over.document.version + 1
    positions = {
        PositionKey(shard, version): StoredPosition(state) for shard, state in states.items() if is_readable(state)
    }
    keys = sorted(positions)
    parts = [keys[first : first + SHARDS_PER_PART] for first in range(0, len(keys), SHARDS_PER_PART)]
    for number, part in enumerate(parts):
        own = {key: positions[key] for key in part}
        await group.own_part(worker, number).write(PositionPart(worker, is_sealed=True, positions=own))
    await group.own_record(worker).write(WorkerRecord(worker, 1, is_sealed=True, parts=len(parts)))
    leases = {shard: lease_from_state(shard, states, worker, version) for shard in states}
    try:
        if over is None:
            job = GroupJob("", name=job_name) if job_name else None
            await group.write_table(LeaseTable(version, worker, StartingPosition.trim_horizon(), leases, job=job), None)
        else:
            await group.write_table(over.document.reset_to(worker, leases), over.version)
    except ConflictError as error:
        await group.delete_worker(worker)
        raise exists from error
    except StoreUnavailableError:
        raise  # Nothing is deleted, because the table may have been stored, and it names this worker.
    except StateError:
        await group.delete_worker(worker)
        raise


def part_name(worker: str, number: int) -> str:
    """Return the name of the document with part `number` of a worker's positions."""
    return f"{PARTS_PREFIX}{worker}/{number}"


async def read_parts(group: GroupStore, record: WorkerRecord) -> Positions:
    """Return the positions in all documents that a worker's record names, read consistently."""
    found: dict[PositionKey, StoredPosition] = {}
    for number in range(record.parts):
        part = await group.read_part(record.worker, number)
        found |= {} if part is None else part.document.positions
    return found


async def read_positions(group: GroupStore, entries: GroupStore | None, record: WorkerRecord) -> Positions:
    """Return the positions of a worker from the group's store and, if `entries` is given, from the store next to the sink's rows."""
    own = None if entries is None else await entries.read_part(record.worker, 0)
    return {**await read_parts(group, record), **({} if own is None else own.document.positions)}


async def read_alone_part(group: GroupStore, entries: GroupStore | None, worker: str) -> PositionPart | None:
    """Return the part (the stored positions) of a worker that runs alone, or None if there is none.

    Look first in `entries`, the store next to the sink's rows, and then in `group`.
    """
    for place in (entries, group):
        if place is not None and (part := await place.read_part(worker, 0)) is not None:
            return part.document
    return None


async def alone_part_of(group: GroupStore, entries: GroupStore | None, table: LeaseTable) -> PositionPart | None:
    """Return the stored positions (the part) of the worker that runs the job of `table` alone.

    Return None if there are none, for example because the table was replaced in the meantime.

    `entries`: the store next to the sink's rows, or None. It is read before `group`.

    Raises: MissingPositionsError if the job's sink kept the part with its rows, and this process's sink does not have it.
    """
    assert table.alone is not None
    if (part := await read_alone_part(group, entries, table.alone.worker)) is not None:
        return part
    again = await group.read_table()
    is_replaced = again is None or again.document.version != table.version
    if is_replaced or table.job is None or not table.job.keeps_positions:
        return None
    raise MissingPositionsError.of(f"worker {table.alone.worker}", group.place, table.job)
