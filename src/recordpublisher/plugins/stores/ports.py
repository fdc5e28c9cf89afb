"""The ClaimStore port: what was read in a batch is written once, before any of it is emitted, and the first writer wins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class BatchId:
    """Whose claims: the query, the batch's number, and the random id of its plan.

    The plan keeps apart what a number alone would mix up: a deleted checkpoint over kept claims, or a driver that lives on
    beside its successor.
    """

    query: str
    batch: int
    plan: str


class ClaimStore(ABC):
    """Claims by batch and group. All calls are synchronous and safe from several processes at once."""

    @abstractmethod
    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """Store durably unless somebody was first; answers what is stored: the claim given, or the winner's."""

    @abstractmethod
    def get(self, batch: BatchId, name: str) -> bytes | None:
        """The stored claim, if any."""

    @abstractmethod
    def load(self, batch: BatchId) -> dict[str, bytes]:
        """Every claim of a batch by name; empty when there are none."""

    @abstractmethod
    def purge(self, query: str, before: int) -> None:
        """Forget the claims of the query's batches with a number below `before`. Never raises for what is gone already."""

    @abstractmethod
    def plant_probe(self, query: str, token: str) -> None:
        """Leave a token for `see_probe`. Raises: ConfigurationError when the location cannot hold claims."""

    @abstractmethod
    def see_probe(self, query: str, token: str) -> None:
        """Raises: ConfigurationError when the token is not there: this process looks at another store than the driver."""


class ObjectStore(ABC):
    """Files named `folder/name`. Safe from many processes at once; the calls of one store belong to one loop.

    Raises everywhere: StateError when the store cannot be reached or written.
    """

    look_seconds: ClassVar[float] = 0.05
    """How long to wait between two looks for what others put: a look may cost money."""

    @abstractmethod
    async def put_if_absent(self, name: str, content: bytes) -> bytes:
        """Store durably unless somebody was first; answers what is stored: the content given, or the winner's."""

    @abstractmethod
    async def put(self, name: str, content: bytes) -> None:
        """Store durably under a name that nobody else uses."""

    @abstractmethod
    async def get(self, name: str) -> bytes | None:
        """What is stored under the name, if anything."""

    @abstractmethod
    async def names(self, beginning: str) -> list[str]:
        """The names that begin so, sorted; `beginning` has the whole folder."""

    @abstractmethod
    async def delete(self, names: Iterable[str]) -> None:
        """Forget files; those that are gone already do not matter."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. It may be used again."""
