"""GroupStore: the documents of a group in a conditional store. OwnDocument: one of which this worker is the only writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from recordpublisher.fetcher.checkpoints.assignment_kinds import (
    LEASE_TABLE,
    PARTS,
    SUBTASK_PREFIX,
    refuse_assignment,
)
from recordpublisher.fetcher.conditional_store import (
    ConditionalStore,
    ConflictError,
    Stored,
    VersionedValue,
    write_value,
)
from recordpublisher.publishers.errors import FencedError, RetriesExhaustedError, StateError, StoreUnavailableError

from .lease_table import LeaseTable
from .lease_table_json import table_from_bytes, table_to_bytes
from .position_part import PositionPart
from .worker_record import WorkerRecord

WORKERS = "group/workers/"
MAX_ATTEMPTS = 10
CALL_SECONDS = 30.0
"""For a call that no lease waits for. The first one to a store takes longest: it connects."""
T = TypeVar("T")


class SealableDocument(Protocol):
    """A document that others may seal."""

    @property
    def is_sealed(self) -> bool:
        """Whether it will never be written again."""

    def to_bytes(self) -> bytes:
        """As it is stored."""


D = TypeVar("D", bound=SealableDocument)


class GroupStore:
    """Reads and writes a group's documents. Each call takes `timeout` seconds at most; a worker's take an interval.

    Raises: StoreUnavailableError when the store does not answer; then a write may or may not have taken effect, now or later. StateError
    when waiting does not help. ConflictError from writes.
    """

    def __init__(self, store: ConditionalStore, timeout: float = CALL_SECONDS) -> None:
        self._store = store
        self._timeout = timeout

    @property
    def place(self) -> str:
        """The store's location, as messages name it."""
        return self._store.place

    async def read_table(self) -> Stored[LeaseTable] | None:
        """The lease table, read consistently; None: there is no group here."""
        found = await self._call(self._store.get(LEASE_TABLE))
        return None if found is None else self.table_of(found)

    async def write_table(self, table: LeaseTable, expected: str | None) -> Stored[LeaseTable]:
        """Replace the version that was read, or create the table (None)."""
        return Stored(table, await self.write(LEASE_TABLE, table_to_bytes(table), expected))

    async def delete_table(self) -> None:
        """Delete the lease table: then there is no group."""
        await self._call(self._store.delete(LEASE_TABLE))

    async def has_subtasks(self) -> bool:
        """Whether a fixed number of subtasks keeps its positions here (E10)."""
        return bool(await self._call(self._store.list_names(SUBTASK_PREFIX)))

    async def refuse_subtasks(self) -> None:
        """Raises: StateError when a fixed number of subtasks keeps its positions here (E10)."""
        if await self.has_subtasks():
            refuse_assignment(self.place, "STATIC", "ELASTIC")

    def table_of(self, value: VersionedValue) -> Stored[LeaseTable]:
        """The lease table that a value contains."""
        return Stored(table_from_bytes(value.value, self._place(LEASE_TABLE)), value.version)

    async def read_records(self, *, consistent: bool = False) -> dict[str, Stored[WorkerRecord]]:
        """The record of each worker. Without `consistent` each may be slightly old, or older than at the read before."""
        found = await self._call(self._store.list(WORKERS, consistent=consistent))
        records = (self._record_of(name, value) for name, value in found.items())
        return {record.document.worker: record for record in records}

    async def seal_record(self, record: Stored[WorkerRecord]) -> WorkerRecord:
        """Seal a worker if its record is still the one that was read; returns the sealed record."""
        sealed = msgspec.structs.replace(record.document, is_sealed=True)
        await self.write(f"{WORKERS}{sealed.worker}", sealed.to_bytes(), record.version)
        return sealed

    def own_record(self, worker: str) -> OwnDocument[WorkerRecord]:
        """The record of this worker."""
        return OwnDocument(self, f"{WORKERS}{worker}", WorkerRecord.from_bytes)

    async def read_part(self, worker: str, number: int) -> Stored[PositionPart] | None:
        """A part of a worker's positions, read consistently."""
        name = part_name(worker, number)
        found = await self._call(self._store.get(name))
        return None if found is None else Stored(PositionPart.from_bytes(found.value, self._place(name)), found.version)

    async def seal_part(self, sealed: PositionPart, number: int, expected: str) -> None:
        """Seal a part if it is still the one that was read."""
        await self.write(part_name(sealed.worker, number), sealed.to_bytes(), expected)

    def own_part(self, worker: str, number: int) -> OwnDocument[PositionPart]:
        """A part of this worker's positions."""
        return OwnDocument(self, part_name(worker, number), PositionPart.from_bytes)

    async def delete_worker(self, worker: str) -> None:
        """Delete a sealed worker's record and parts. The record goes last: without it nobody looks for the parts."""
        await self.delete_parts(worker)
        await self._call(self._store.delete(f"{WORKERS}{worker}"))

    async def delete_parts(self, worker: str) -> None:
        """Delete a sealed worker's parts."""
        parts = await self._call(self._store.list_names(f"{PARTS}{worker}/"))
        await self._call(self._store.delete(*parts))

    async def write(self, name: str, content: bytes, expected: str | None) -> str:
        """Write a document; returns its new version."""
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


class OwnDocument(Generic[D]):
    """Owns the stored version of a document that only this worker writes, until somebody seals it."""

    def __init__(self, group: GroupStore, name: str, parse: Callable[[bytes, str], D]) -> None:
        self._group = group
        self._name = name
        self._parse = parse
        self._version: str | None = None

    async def write(self, document: D) -> None:
        """Write it under the version before; the first write creates it.

        A refused write means that an earlier one of ours took effect after all: this one itself, else this one follows it. Raises:
        FencedError when the document was sealed or deleted.
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
                    raise FencedError(f"{self._name} was sealed: other workers have the shards of this one") from error
                self._version = error.current.version
            else:
                return
        raise StoreUnavailableError(f"{self._name} was refused {MAX_ATTEMPTS} times")


async def write_first_table(group: GroupStore, table: LeaseTable) -> Stored[LeaseTable]:
    """Write the first lease table. Raises: ConflictError when there is one; StateError for positions of subtasks (E10).

    The look for subtasks comes after the write: a subtask that starts later sees the table, and one that has not seen it is seen here.
    Without an answer to that look the table stays, since others may use it already: whoever reads it first looks again (TableCache).
    """
    created = await group.write_table(table, None)
    if await group.has_subtasks():
        await group.delete_table()
        refuse_assignment(group.place, "STATIC", "ELASTIC")
    return created


def part_name(worker: str, number: int) -> str:
    """The name of a part."""
    return f"{PARTS}{worker}/{number}"
