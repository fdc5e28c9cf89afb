"""ConditionalStore: small values by name, written only if nobody else has written meanwhile. State, claims and objects stand on it."""

from __future__ import annotations

import asyncio
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from recordpublisher.publishers.errors import StateError


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """A value and the version under which it is stored.

    Every write gets a new version. S3 is the exception: there a version is an ETag, so that equal values have equal versions. Whoever
    compares versions puts something into the value that does not come back, for example a number that only rises.
    """

    value: bytes
    version: str


class ConflictError(StateError):
    """A conditional write was refused. `current` is what is stored instead; None: nothing."""

    def __init__(self, place: str, name: str, current: VersionedValue | None) -> None:
        self.current = current
        found = "nothing is" if current is None else "another value is"
        super().__init__(f"{name} in {place} was not written: {found} stored there")


class ConditionalStore(ABC):
    """Values of one location by name. Safe for many processes at once; the calls of one store belong to one event loop.

    A name is a path (`query/batch/group-0`). Every write is durable when it returns. One
    whose response was lost is looked up by a mark of its own: ConflictError means that somebody else's value is there.

    Raises everywhere: StateError when the store cannot be reached, RetriesExhaustedError when a database is away.
    """

    poll_seconds: ClassVar[float] = 0.05
    """How long to wait between two reads for what others write: a read may cost money."""

    place: str
    """The location, as messages name it: without a password."""

    @abstractmethod
    async def get(self, name: str) -> VersionedValue | None:
        """What is stored under the name now, if anything."""

    @abstractmethod
    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Store a value where there is none; returns its version. Raises: ConflictError, with the value that is there."""

    @abstractmethod
    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Replace the value of the expected version; returns the new version. Raises: ConflictError. A name without a value is never
        written: it may have been deleted because its writer must not come back."""

    @abstractmethod
    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Every value whose name begins so, by name in order. Not `consistent`: it may be a little old, for half the price."""

    @abstractmethod
    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        """The versions alone, by name in order: a cheap way to see who has written."""

    @abstractmethod
    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """The names alone, in order; with `before` those that sort before it."""

    @abstractmethod
    async def delete(self, *names: str) -> None:
        """Remove values. Those that are gone already do not matter."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. It may be used again."""


def new_version() -> str:
    """A version that no other write has."""
    return secrets.token_hex(8)


async def pause(attempt: int) -> None:
    """Before another attempt after a conflict: up to 0.1 s, doubled each time up to 3 s."""
    await asyncio.sleep(random.random() * 0.1 * 2 ** min(attempt, 5))  # noqa: S311 - jitter
