"""The port of stores for small named values that are written only if no other process has changed them.

Such a store keeps the positions of jobs, the documents of groups, and a note of which records each task of a Spark query has read (its
claim). `read_document` reads such a value, and refuses one that this library cannot use.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from ..publishers import kinesis
from ..publishers.async_port import AsyncPort
from ..publishers.errors import PluginError, RetriesExhaustedError, StateError, StoreUnavailableError
from ..publishers.positions import LONGEST_SEQUENCE
from ..publishers.retry import Failures, RetryPolicy
from ..publishers.safe_text import repr_of
from ..publishers.user_code import PluginCall, close_or_leave

T = TypeVar("T")
S = TypeVar("S", bound="ConditionalStore | None")


class ConditionalStore(AsyncPort, ABC):
    """Stores the values of one location by name. Many processes may use a location at once. Each store object belongs to one event loop.

    A registered store is built as `Store(uri, key, properties)`, where `key` is the property or option that contains the URI.

    A name is a path (`query/batch/group-0`). Every write is durable when it returns. ConflictError always means that another writer's value
    is stored, even if the response to an earlier attempt was lost.

    Every read shows each write that has returned, also a write of another process (read-after-write); only `list` without `consistent` may
    be older. With a cache, or a replica that lags behind, a group would write records again.

    Every method raises StoreUnavailableError if the store cannot be reached now (RetriesExhaustedError if the store is a database), and
    StateError if a later attempt would fail too. A store need not retry: a job makes a call again after StoreUnavailableError, for
    `flink.job.max.outage`.
    """

    actions: ClassVar[Mapping[str, Literal["reads", "lists", "writes", "deletes", "creates"]]] = {}
    """The IAM actions that the store calls, and what each is for. Actions that delete are needed only by groups of workers and Spark."""

    place: str
    """The location without a password, as messages show it."""

    @abstractmethod
    async def get(self, name: str) -> VersionedValue | None:
        """Return the stored value, or None if there is none."""

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Return the stored value of each name that has one."""
        found = {name: await self.get(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    @abstractmethod
    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Store a value under a new name, and return its version. Raises: ConflictError, with the stored value, if the name is taken."""

    @abstractmethod
    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Replace the value if its version is `expected`, and return the new version.

        Raises: ConflictError if the stored version differs from `expected`, or if there is no value. A missing value is not created again,
        because it may have been deleted to keep an old writer out.
        """

    @abstractmethod
    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return every value whose name has the prefix, sorted by name.

        Without `consistent` the values may be slightly old, and the call costs half.
        """

    @abstractmethod
    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        """Return the version of each name with the prefix, sorted by name; this is a cheap way to detect writes."""

    @abstractmethod
    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix, sorted; with `before`, only those that sort before it."""

    @abstractmethod
    async def delete(self, *names: str) -> None:
        """Delete values. Names without a value are ignored."""

    async def end_sessions(self, role: str) -> None:
        """End what an earlier process with this role has left open, such as a database session with its locks.

        `role`: the name of a task that only one process of the job has at a time, such as `alone`. From now on this process has the role.
        """

    async def close(self) -> None:
        """Release the store's connections and threads, which the next call of another method must open again.

        A program may give the closed store to its next job. This method may be called again, and for a store that was never used.
        """


class NamedStore(ConditionalStore):
    """Wraps a store of another package: errors name the store, a call that hangs is reported, and results of a wrong type are refused."""

    def __init__(self, store: ConditionalStore, close_seconds: float) -> None:
        self._store = check_place(store)
        self._close_seconds = close_seconds
        self.place = store.place

    async def get(self, name: str) -> VersionedValue | None:
        """Return the stored value, or None if there is none."""
        found: VersionedValue | None = await self._call("get", name, wanted=(VersionedValue, type(None)))
        return found

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Return the stored value of each name that has one."""
        found: dict[str, VersionedValue] = await self._call("get_all", names, wanted=(dict,))
        return found

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Store a value if there is none under this name, and return its version."""
        found: str = await self._call("put_if_absent", name, value, wanted=(str,))
        return found

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Replace the value if it has the expected version, and return the new version."""
        found: str = await self._call("compare_and_set", name, value, expected, wanted=(str,))
        return found

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return the values whose name has the prefix."""
        found: dict[str, VersionedValue] = await self._call("list", prefix, wanted=(dict,), consistent=consistent)
        return found

    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        """Return the version of each name with the prefix."""
        found: Mapping[str, str] = await self._call("list_versions", prefix, wanted=(Mapping,))
        return found

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix; with `before`, only those that sort before it."""
        found: Sequence[str] = await self._call("list_names", prefix, before, wanted=(Sequence,))
        return found

    async def delete(self, *names: str) -> None:
        """Delete values."""
        await self._call("delete", *names)

    async def end_sessions(self, role: str) -> None:
        """End what an earlier process with this role has left open, such as a database session."""
        await self._call("end_sessions", role)

    async def close(self) -> None:
        """Close the store. If it does not close within `close_seconds`, continue without it."""
        await close_or_leave(self._store, self._close_seconds)

    async def _call(self, method: str, *given: Any, wanted: tuple[type, ...] = (), **options: Any) -> Any:
        call = PluginCall(self._store, method)
        with call:
            found = await getattr(self._store, method)(*given, **options)
        if wanted and not isinstance(found, wanted):
            types = " or ".join("None" if each is type(None) else each.__name__ for each in wanted)
            raise PluginError(f"{call.name} returned {repr_of(found)}: it must return {types}")
        if method in _RETURN_VALUES:
            for each in found.values() if isinstance(found, dict) else [] if found is None else [found]:
                _check_value(call.name, each)
        return found


_RETURN_VALUES = {"get", "get_all", "list"}


def _check_value(name: str, found: Any) -> None:
    """Check a value that a store of another package has returned. Raises: PluginError if its type or a field is wrong."""
    if not isinstance(found, VersionedValue):
        raise PluginError(f"{name} returned the value {repr_of(found)}: each value must be a VersionedValue")
    if not isinstance(found.value, bytes):
        raise PluginError(f"{name} returned a VersionedValue whose value is {repr_of(found.value)}: it must be bytes")
    if not isinstance(found.version, str):
        raise PluginError(
            f"{name} returned a VersionedValue whose version is {repr_of(found.version)}: it must be a str"
        )


def check_place(store: S) -> S:
    """Check that a store has the attribute `place` (its location without a password), and return the store. None is returned unchecked.

    Raises: PluginError if `place` is missing, or is not a text.
    """
    if store is not None and not isinstance(getattr(store, "place", None), str):
        raise PluginError(
            f"`{type(store).__name__}.__init__` has set no `self.place`: set it to the location without a password, as a str"
        )
    return store


def named_store(store: ConditionalStore | None, close_seconds: float = 20.0) -> ConditionalStore | None:
    """Return a store of another package wrapped in `NamedStore`. Return a store of this package, or None, unchanged.

    `close_seconds`: how long the store's `close` may take (seconds).
    """
    is_ours = store is None or type(store).__module__.partition(".")[0] == "recordpublisher"
    return store if store is None or is_ours else NamedStore(store, close_seconds)


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """A value and the version under which it is stored.

    Every write creates a new version, except in S3: there the version is the ETag, so equal values have equal versions. A caller that
    compares versions must therefore never write the same value twice.
    """

    value: bytes
    version: str


class StoredDocument(msgspec.Struct, Generic[T], frozen=True):
    """A document, and the version under which it is stored."""

    document: T
    version: str


class ConflictError(StateError):
    """A conditional write was refused, because the stored value has another version or is missing.

    `current`: the stored value, or None if there is none.
    """

    def __init__(self, place: str, name: str, current: VersionedValue | None) -> None:
        self.current = current
        found = "nothing is" if current is None else "another value is"
        super().__init__(f"{name} in {place} was not written: {found} stored there")


async def write_value(store: ConditionalStore, name: str, value: bytes, expected: str | None) -> str:
    """Write a value if the stored version is `expected`, and return the new version.

    `expected`: None means that no value may be stored yet.

    Raises: ConflictError if another version is stored.
    """
    if expected is None:
        return await store.put_if_absent(name, value)
    return await store.compare_and_set(name, value, expected)


def new_version() -> str:
    """Return a random text as the version of a write. No other write gets the same one."""
    return secrets.token_hex(8)


async def pause_after_conflict(attempt: int) -> None:
    """Wait before another attempt after a conflict: a random time up to 0.1 s, doubled with each attempt up to 3 s."""
    await asyncio.sleep(random.random() * 0.1 * 2 ** min(attempt, 5))  # noqa: S311 - jitter


async def wait_for_store(call: Callable[[], Awaitable[T]], policy: RetryPolicy, called: str = "the state store") -> T:
    """Repeat `call` until the store answers, for as long as `policy` allows, and return the result.

    `called`: the name of the store, or of the stores that `call` may use, for the log.

    A call is not repeated if DNS does not know the host, or if the host does not speak TLS, because the address is probably wrong.

    Raises: StoreUnavailableError if the store gave no answer for as long as `policy` allows, or if its address is probably wrong; every
    other error of `call`, at once.
    """
    failures = Failures(policy, called)
    with failures.around_calls():
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


# Reads stored documents: JSON that a release of this library, or another program, has written.
#
# The caller gives a struct that describes the fields of the document.

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Millis = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A time (epoch ms), or a watermark."""
SequenceText = Annotated[str, msgspec.Meta(max_length=LONGEST_SEQUENCE)]
"""The text of a sequence number. Kinesis has numbers of 56 digits; those of other sources may be longer."""
ShardKey = Annotated[str, msgspec.Meta(pattern="./[^/]+$")]
"""`Shard.key`: stream name and shard id."""
WorkerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
REMEDY = "if it belongs to another program, move it away; if it belongs to this job, restore it from a copy"


def read_document(value: bytes | str, kind: type[T], place: str, format_number: int | None = None) -> T:
    """Return a stored JSON document, parsed as the type `kind`.

    `format_number`: the format that the document must have, if it is given.

    Raises: StateError, which names the place, the mismatch and the remedy, if the document cannot be read.
    """
    try:
        if format_number is not None and (stored := msgspec.json.decode(value, type=_Format).format) != format_number:
            raise StateError(
                f"{place} cannot be read: it has format {stored}, and this version reads only format {format_number}. "
                "Use the version that wrote it"
            )
        return msgspec.json.decode(value, type=kind)
    except _UNREADABLE as error:
        raise unreadable_error(place, error) from error


def document_as(content: Any, kind: type[T], place: str) -> T:
    """Convert a parsed JSON document into the type `kind`. Raises: StateError, which names the place and the remedy, if it does not fit."""
    try:
        return msgspec.convert(content, kind)
    except _UNREADABLE as error:
        raise unreadable_error(place, error) from error


def unreadable_error(place: str, error: object) -> StateError:
    """Return the error for a stored document that this library cannot read. `error`: the reason."""
    return StateError(f"{place} cannot be read: {error}; {REMEDY}")


class _Format(msgspec.Struct):
    format: int = 1


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
