"""Each mutation takes one rule out of how a job that runs alone is started, replaced and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from recordpublisher.fetcher.elastic import alone_worker, positions_with_rows
from recordpublisher.fetcher.elastic.alone_worker import AloneWorker
from recordpublisher.fetcher.leases import lease_table, worker, worker_sealing
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, GroupStore, alone_states, read_alone_part
from recordpublisher.fetcher.leases.lease_table import LeaseTable, table_to_bytes

Patches = list[tuple[Any, str, Any]]


def parts_are_not_sealed() -> Patches:
    """A3: who takes over reads the part and does not seal it."""

    async def read(group: GroupStore, worker: str, number: int) -> Any:
        part = await group.read_part(worker, number)
        return None if part is None else part.document

    return [(worker_sealing, "seal_part", read), (positions_with_rows, "seal_part", read)]


def a_sealed_record_is_enough() -> Patches:
    """A3: the part of a worker whose record another process has sealed already is only read."""

    async def sealed(group: GroupStore, alone: Any, positions: Any) -> Any:
        found = await group.read_record(alone.worker)
        if found is None or not found.document.is_sealed:
            return await worker_sealing.seal_alone_worker(group, alone, positions)
        read = await positions.read(found.document)
        return alone_states(read, alone), await read_alone_part(group, positions.entries, alone.worker)

    return _taken_over_by(sealed)


def positions_from_before_the_seal() -> Patches:
    """A3: the positions are read before the part is sealed."""

    async def sealed(group: GroupStore, alone: Any, positions: Any) -> Any:
        found = await group.read_record(alone.worker)
        read = {} if found is None else await positions.read(found.document)
        part = (await worker_sealing.seal_alone_worker(group, alone, positions))[1]
        return alone_states(read, alone), part

    return _taken_over_by(sealed)


def positions_are_not_folded() -> Patches:
    """A5: a group does not add the positions of the worker that ran alone to the table."""
    return [(LeaseTable, "with_alone_leases", lambda self, states, pinned_ms=None: self)]


def what_resumes_has_not_begun() -> Patches:
    """A5: a shard with a position waits for its parents if the start that resumed it had not looked at them yet."""
    return [(lease_table, "is_readable", lambda state: not state.ended and not state.waiting)]


def table_before_positions() -> Patches:
    """A4: the table names the worker before its positions are stored."""

    async def prepare(self: AloneWorker, states: Any) -> None:
        await self._positions.settle()
        await self._positions.join()
        self._positions.set_times(self._pinned_ms, self._taken_ms)
        await self._write_record()
        self._states = states

    return [(AloneWorker, "_prepare", prepare)]


def table_of_any_version() -> Patches:
    """A2: the table is written without looking at its version."""

    async def write_table(self: GroupStore, table: LeaseTable, expected: str | None) -> Any:
        found = await self._store.get(LEASE_TABLE)
        await self.write(LEASE_TABLE, table_to_bytes(table), None if found is None else found.version)

    return [(GroupStore, "write_table", write_table)]


def cleaned_at_once() -> Patches:
    """A12: what a sealed worker has left is deleted before the table has moved on."""
    prepare = AloneWorker._prepare

    async def cleaned(self: AloneWorker, states: Any) -> None:
        found = await self._documents.read_table()
        if found is not None and found.document.alone is not None:
            await self._positions.delete(found.document.alone.worker)
            await self._documents.delete_worker(found.document.alone.worker)
        await prepare(self, states)

    return [(AloneWorker, "_prepare", cleaned)]


def nobody_looks_at_rest() -> Patches:
    """A10: a process at rest does not look whether it was replaced."""

    async def nothing(self: AloneWorker) -> None:
        pass

    return [(AloneWorker, "_confirm", nothing)]


def _taken_over_by(sealed: Any) -> Patches:
    return [(alone_worker, "seal_alone_worker", sealed), (worker, "seal_alone_worker", sealed)]


MUTATIONS: dict[str, Callable[[], Patches]] = {
    each.__name__: each
    for each in (
        parts_are_not_sealed, a_sealed_record_is_enough, positions_from_before_the_seal, positions_are_not_folded,
        what_resumes_has_not_begun, table_before_positions, table_of_any_version, cleaned_at_once,
        nobody_looks_at_rest,
    )
}  # fmt: skip


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The protocol without one rule."""
    with ExitStack() as stack:
        for owner, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(owner, attribute, value))
        yield
