"""ConditionalStore: small values by name, written only if nobody else has written meanwhile. State, groups and claims are kept in one."""

import asyncio
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

import msgspec

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.errors import RetriesExhaustedError, StateError, StoreUnavailableError
from recordpublisher.publishers.retry import Failures, RetryPolicy
from recordpublisher.publishers.user_code import AsyncPort

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """A value and the version under which it is stored.

    Every write gets a new version, except in S3: there the version is the ETag, so equal values have equal versions. A caller that
    compares versions must never write the same value twice.
    """

    value: bytes
    version: str


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """A document, and the version under which it is stored."""

    document: T
    version: str


class ConflictError(StateError):
    """A conditional write was refused. `current` is the stored value; None: there is none."""

    def __init__(self, place: str, name: str, current: VersionedValue | None) -> None:
        self.current = current
        found = "nothing is" if current is None else "another value is"
        super().__init__(f"{name} in {place} was not written: {found} stored there")


class ConditionalStore(AsyncPort, ABC):
    """Values of one location by name. Safe for many processes at once; the calls of one store belong to one event loop.

    A registered one is built as `Store(uri, key, properties)`, where `key` names the property or option that has the URI.

    A name is a path (`query/batch/group-0`). Every write is durable when it returns. ConflictError always means that somebody else's value
    is stored, also when a response was lost.

    Every method raises: StoreUnavailableError when the store cannot be reached now (a database: RetriesExhaustedError), StateError when
    waiting does not help.
    """

    actions: ClassVar[Mapping[str, Literal["reads", "lists", "writes", "deletes", "creates"]]] = {}
    """The IAM actions that it calls, and what each does; only groups of workers and Spark need what deletes."""

    place: str
    """The location, as messages name it: without a password."""

    @abstractmethod
    async def get(self, name: str) -> VersionedValue | None:
        """The stored value; None when there is none."""

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """The stored values of these names, without those that have none."""
        found = {name: await self.get(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    @abstractmethod
    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Store a value if there is none; returns its version. Raises: ConflictError with the stored value."""

    @abstractmethod
    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Replace the value if it has the expected version; returns the new version. Raises: ConflictError, also when there is no value: it
        may have been deleted so that an old writer cannot return."""

    @abstractmethod
    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Every value whose name has the prefix, sorted by name. Without `consistent` they may be slightly old, for half the price."""

    @abstractmethod
    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        """Only the versions, sorted by name: a cheap way to detect writes."""

    @abstractmethod
    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Only the names, sorted; with `before` those that sort before it."""

    @abstractmethod
    async def delete(self, *names: str) -> None:
        """Delete values. Names without a value are ignored."""

    async def end_sessions(self, role: str) -> None:
        """End what an earlier process with this role still holds, as a database's session that was suspended holds locks."""

    async def close(self) -> None:
        """Release the store's resources. It may be used again."""


async def write_value(store: ConditionalStore, name: str, value: bytes, expected: str | None) -> str:
    """Replace the value that has this version; None: store one if there is none. Returns the new version. Raises: ConflictError."""
    if expected is None:
        return await store.put_if_absent(name, value)
    return await store.compare_and_set(name, value, expected)


def new_version() -> str:
    """A random version, unique to one write."""
    return secrets.token_hex(8)


async def pause(attempt: int) -> None:
    """Wait before another attempt after a conflict: a random time up to 0.1 s, doubled with each attempt up to 3 s."""
    await asyncio.sleep(random.random() * 0.1 * 2 ** min(attempt, 5))  # noqa: S311 - jitter


async def wait_for_store(call: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """Call until the store answers, for as long as `policy` says; returns the result.

    A host that DNS does not know, or that speaks no TLS, ends this at once: it may be the wrong one, and the store's client has tried it
    several times.
    Raises: StoreUnavailableError, and every other error at once.
    """
    failures = Failures(policy, "the state store")
    try:
        while True:
            try:
                result = await call()
            except StoreUnavailableError as error:
                if kinesis.is_host_unknown(error) or kinesis.speaks_no_tls(error):
                    raise
                try:
                    pause = failures.pause_after(error)
                except RetriesExhaustedError as over:
                    raise StoreUnavailableError(str(over)) from error
            else:
                failures.on_success()
                return result
            await failures.sleep(pause)
    finally:
        failures.end()
