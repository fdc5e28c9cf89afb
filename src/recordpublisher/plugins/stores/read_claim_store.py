"""ReadClaimStore: stores once what a task has read, before any of it is emitted; the first writer wins."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError
from recordpublisher.publishers.kinesis import run_sync

from .conditional_store import ConditionalStore, ConflictError

T = TypeVar("T")
_VALID = "one place that the driver and every executor can read and write"


@dataclass(frozen=True, slots=True)
class BatchId:
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


class ReadClaimStore:
    """Claims by batch and name: `<query>/<batch>-<plan>/<name>`. All calls block and are safe from many threads and processes at once.

    `open_store` makes a conditional store for each call, since a store with a client belongs to the event loop of its call. A store that
    never awaits anything (`needs_loop` is false) is called without an event loop.
    """

    def __init__(
        self, open_store: Callable[[], ConditionalStore], key: str = "metadataLocation", *, needs_loop: bool = True
    ) -> None:
        """`key`: the option that names the place."""
        self._open_store = open_store
        self.key = key
        self._run: Callable[[Coroutine[Any, Any, Any]], Any] = run_sync if needs_loop else _run_without_loop

    @property
    def place(self) -> str:
        """The location, as messages name it."""
        return self._open_store().place

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """Store a claim durably unless there is one; returns the stored claim: this one, or the earlier one."""
        return self._call(lambda store: _put_if_absent(store, batch.prefix + name, claim))

    def get(self, batch: BatchId, name: str) -> bytes | None:
        """The stored claim, if any."""
        found = self._call(lambda store: store.get(batch.prefix + name))
        return None if found is None else found.value

    def load(self, batch: BatchId) -> dict[str, bytes]:
        """Every claim of a batch by name."""
        found = self._call(lambda store: store.list(batch.prefix))
        return {name.removeprefix(batch.prefix): entry.value for name, entry in found.items()}

    def purge(self, query: str, before: int) -> None:
        """Remove the claims of the query's batches with a number below `before`."""

        async def purge(store: ConditionalStore) -> None:
            await store.delete(*await store.list_names(f"{query}/", before=f"{query}/{max(before, 0):010d}"))

        self._call(purge)

    def write_marker(self, query: str, token: str) -> None:
        """Store a marker for `check_marker`. Raises: ConfigurationError when the location cannot hold claims."""
        try:
            self._call(lambda store: _put_if_absent(store, _marker_name(query, token), token.encode()))
        except Exception as error:
            reason = f"claims cannot be stored there: {error}"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason) from error

    def check_marker(self, query: str, token: str) -> None:
        """Raises: ConfigurationError when there is no such marker: this process uses another store than the driver."""
        if self._call(lambda store: store.get(_marker_name(query, token))) is None:
            reason = "a task cannot see what the driver wrote there"
            raise ConfigurationError(self.key, self.place, _VALID, reason=reason)

    def _call(self, work: Callable[[ConditionalStore], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            store = self._open_store()
            try:
                return await work(store)
            finally:
                await store.close()

        result: T = self._run(run())
        return result


def _run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise ImpossibleStateError("the store awaited something without an event loop")


async def _put_if_absent(store: ConditionalStore, name: str, value: bytes) -> bytes:
    try:
        await store.put_if_absent(name, value)
    except ConflictError as error:
        return error.current.value if error.current is not None else value
    return value


def _marker_name(query: str, token: str) -> str:
    return f"{query}/marker-{token}"
