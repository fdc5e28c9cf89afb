"""Stores the claims of Spark tasks: each task stores what it has read, before it emits any of it.

If several attempts of a task write a claim, the first one wins.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError
from recordpublisher.publishers.properties.properties import Properties

from .by_location import conditional_store_of
from .folder_store import FolderStore

T = TypeVar("T")
_VALID = "a location that the driver and every executor can read and write"


class ReadClaimStore:
    """Keeps claims (what tasks have read) by batch and name: `<query>/<batch>-<plan>/<name>`.

    Every call blocks. Many threads and processes may call at once.

    - `store`: holds the claims. Its client stays open between calls.
    - `key`: the option that names the location.
    """

    def __init__(self, store: ConditionalStore, run: RunCoroutine, key: str = "metadataLocation") -> None:
        self._store = store
        self._run = run
        self.key = key

    @property
    def place(self) -> str:
        """The location, as messages show it."""
        return self._store.place

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """Store a claim durably, unless an earlier claim of this name is stored. Return the claim that is stored then."""
        return self._run(_put_if_absent(self._store, batch.prefix + name, claim))

    def get(self, batch: BatchId, name: str, token: str) -> bytes | None:
        """Return the stored claim, or None if there is none.

        Raises: ConfigurationError if the query's marker `token` is missing, because the driver then uses another store.
        """
        stored = self.load(batch, (name,), token)
        if not stored.has_marker:
            reason = "a task cannot see the values that the driver has stored there"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason)
        return stored.claims.get(name)

    def load(self, batch: BatchId, names: Iterable[str], token: str) -> StoredClaims:
        """Return the claims of a batch with these names, and whether the query's marker `token` exists (see `write_marker`)."""
        marker = _marker_name(batch.query, token)
        found = self._run(self._store.get_all((marker, *(batch.prefix + name for name in names))))
        has_marker = found.pop(marker, None) is not None
        return StoredClaims({name.removeprefix(batch.prefix): entry.value for name, entry in found.items()}, has_marker)

    def purge(self, query: str, before: int) -> None:
        """Remove the claims of the query's batches with a number below `before`."""

        async def purge() -> None:
            names = await self._store.list_names(f"{query}/", before=f"{query}/{max(before, 0):010d}")
            await self._store.delete(*names)

        self._run(purge())

    def has_later(self, query: str, batch: int) -> bool:
        """Return whether there are claims of the query's batches with a number above `batch`."""
        names = self._run(self._store.list_names(f"{query}/"))
        return any(name > f"{query}/{batch + 1:010d}" for name in names if not name.startswith(_marker_name(query, "")))

    def queries(self) -> set[str]:
        """Return the ids of the queries that have claims in this store."""
        return queries_of(self._run(self._store.list_names("")))

    def write_marker(self, query: str, token: str) -> None:
        """Store the marker `token` of a query. By it, `get` and `has_marker` find out whether they use the same store.

        Raises: ConfigurationError if the location cannot store claims.
        """
        try:
            self._run(_put_if_absent(self._store, _marker_name(query, token), token.encode()))
        except Exception as error:
            reason = f"claims (what tasks have read) cannot be stored there: {error}"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason) from error

    def has_marker(self, query: str, token: str) -> bool:
        """Return whether the store has the query's marker `token` (see `write_marker`)."""
        return self._run(self._store.get(_marker_name(query, token))) is not None

    def close(self) -> None:
        """Close the client. The next call opens a new one."""
        self._run(self._store.close())


class BatchId(msgspec.Struct, frozen=True):
    """Identifies a batch: the query, the batch's number, and the random id of its plan.

    The number alone is not enough, because other claims with the same number may exist: of a deleted checkpoint, or of an old driver that
    is still running.
    """

    query: str
    batch: int
    plan: str

    @property
    def prefix(self) -> str:
        """The prefix of the names of the batch's claims. Numbers have ten digits, so that names sort as numbers do."""
        return f"{self.query}/{self.batch:010d}-{self.plan}/"


class StoredClaims(msgspec.Struct, frozen=True):
    """Claims by name.

    - `has_marker`: whether the store has the marker that the query wrote. If not, an empty store may have replaced the query's store.
    """

    claims: dict[str, bytes]
    has_marker: bool


class RunCoroutine(Protocol):
    """Runs a coroutine from synchronous code. All coroutines run on one event loop, because the store's client is bound to it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine."""


def read_claim_store_of(
    location: str, properties: Properties, run: RunCoroutine, key: str = "metadataLocation"
) -> ReadClaimStore:
    """Return the store at a location, for claims (what the tasks of a query have read).

    - `run`: runs the coroutines of a store in a remote service. It is not used for a folder, whose calls block.
    - `key`: the option that contains the location.

    Raises: ConfigurationError if the location is not valid or cannot store claims.
    """
    store = conditional_store_of(location, key, properties, is_for_claims=True)
    if isinstance(store, FolderStore):
        return ReadClaimStore(FolderStore(store.place, key, in_thread=False), run_without_loop, key)
    return ReadClaimStore(store, run, key)


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, such as a call of a store that blocks.

    Raises: ImpossibleStateError if it waits.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise ImpossibleStateError("a call of a store that has to block has waited for something asynchronous")


def queries_of(names: Iterable[str]) -> set[str]:
    """Return the ids of the queries that have claims. `names`: the names of all stored values."""
    return {name.partition("/")[0] for name in names if name.count("/") > 1}


async def _put_if_absent(store: ConditionalStore, name: str, value: bytes) -> bytes:
    try:
        await store.put_if_absent(name, value)
    except ConflictError as error:
        if error.current is None:
            # The other claim has been deleted since. So no claim is stored, and another attempt of the task must read again.
            raise
        return error.current.value
    return value


def _marker_name(query: str, token: str) -> str:
    return f"{query}/marker-{token}"
