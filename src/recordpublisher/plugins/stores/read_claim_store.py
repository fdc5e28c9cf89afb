"""ReadClaimStore: stores once what a task has read, before any of it is emitted; the first writer wins."""

from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError

T = TypeVar("T")
_VALID = "one place that the driver and every executor can read and write"


class BatchId(msgspec.Struct, frozen=True):
    """Identifies a batch: the query, the batch's number, and the random id of its plan.

    The number alone is not enough: a deleted checkpoint, or a driver that still runs beside its successor, may have claims with the same
    number.
    """

    query: str
    batch: int
    plan: str

    @property
    def prefix(self) -> str:
        """The folder of the batch's claims. Numbers have ten digits, so that names sort as numbers do."""
        return f"{self.query}/{self.batch:010d}-{self.plan}/"


class StoredClaims(msgspec.Struct, frozen=True):
    """Claims by name; `has_marker`: the store has the query's marker."""

    claims: dict[str, bytes]
    has_marker: bool


class RunCoroutine(Protocol):
    """Runs a coroutine from synchronous code. The store's calls all run on one event loop, since its client belongs to it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine."""


class ReadClaimStore:
    """Claims by batch and name: `<query>/<batch>-<plan>/<name>`. All calls block and are safe from many threads and processes at once.

    Owns the conditional store; its client stays open from call to call.
    """

    def __init__(self, store: ConditionalStore, run: RunCoroutine, key: str = "metadataLocation") -> None:
        """`key`: the option that names the place."""
        self._store = store
        self._run = run
        self.key = key

    @property
    def place(self) -> str:
        """The location, as messages name it."""
        return self._store.place

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """Store a claim durably unless there is one; returns the stored claim: this one, or the earlier one."""
        return self._run(_put_if_absent(self._store, batch.prefix + name, claim))

    def get(self, batch: BatchId, name: str, token: str) -> bytes | None:
        """The stored claim, if any. Raises: ConfigurationError without the query's marker: this is another store than the driver's."""
        stored = self.load(batch, (name,), token)
        if not stored.has_marker:
            reason = "a task cannot see what the driver wrote there"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason)
        return stored.claims.get(name)

    def load(self, batch: BatchId, names: Iterable[str], token: str) -> StoredClaims:
        """The claims of a batch, and whether the query's marker is there, read together."""
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

    def queries(self) -> set[str]:
        """The queries that have claims here."""
        return queries_of(self._run(self._store.list_names("")))

    def write_marker(self, query: str, token: str) -> None:
        """Store a marker for `get` and `has_marker`. Raises: ConfigurationError when the location cannot hold claims."""
        try:
            self._run(_put_if_absent(self._store, _marker_name(query, token), token.encode()))
        except Exception as error:
            reason = f"claims cannot be stored there: {error}"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason) from error

    def has_marker(self, query: str, token: str) -> bool:
        """Whether the marker was written, and not lost since."""
        return self._run(self._store.get(_marker_name(query, token))) is not None

    def close(self) -> None:
        """Close the client. The next call opens a new one."""
        self._run(self._store.close())


def queries_of(names: Iterable[str]) -> set[str]:
    """The queries of stored claims, by the names of everything that is stored."""
    return {name.partition("/")[0] for name in names if name.count("/") > 1}


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: the calls of a store that blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise ImpossibleStateError("the store awaited something without an event loop")


async def _put_if_absent(store: ConditionalStore, name: str, value: bytes) -> bytes:
    try:
        await store.put_if_absent(name, value)
    except ConflictError as error:
        if (
            error.current is None
        ):  # deleted since: neither claim is stored, and another try of the task would read again
            raise
        return error.current.value
    return value


def _marker_name(query: str, token: str) -> str:
    return f"{query}/marker-{token}"
