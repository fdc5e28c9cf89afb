"""Reads and writes the documents of a group in a conditional store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from recordpublisher.fetcher.checkpoints.assignment_kinds import LEASE_TABLE, PARTS
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
"""Timeout of a call that no lease waits for (seconds). The first call to a store takes longest, because it connects."""
T = TypeVar("T")


class SealableDocument(Protocol):
    """A document that other workers may seal."""

    @property
    def is_sealed(self) -> bool:
        """Whether the document will never be written again."""

    def to_bytes(self) -> bytes:
        """Return the document as it is stored."""


D = TypeVar("D", bound=SealableDocument)


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
        """Seal a worker if its record is still the one that was read, and return the sealed record."""
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
        """Replace a part by its sealed version, if it is still the one that was read."""
        await self.write(part_name(sealed.worker, number), sealed.to_bytes(), expected)

    def own_part(self, worker: str, number: int) -> OwnDocument[PositionPart]:
        """Return a part of this worker's positions, for writing."""
        return OwnDocument(self, part_name(worker, number), PositionPart.from_bytes)

    async def delete_worker(self, worker: str) -> None:
        """Delete a sealed worker's parts, and then its record, because without the record no process looks for the parts."""
        await self.delete_parts(worker)
        await self._call(self._store.delete(f"{WORKERS}{worker}"))

    async def delete_parts(self, worker: str) -> None:
        """Delete a sealed worker's parts."""
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
                    raise FencedError(f"{self._name} was sealed: other workers have the shards of this one") from error
                self._version = error.current.version
            else:
                return
        raise StoreUnavailableError(f"{self._name} was refused {MAX_ATTEMPTS} times")


def part_name(worker: str, number: int) -> str:
    """Return the name of a part."""
    return f"{PARTS}{worker}/{number}"
