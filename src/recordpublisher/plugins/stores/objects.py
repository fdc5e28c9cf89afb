"""The ObjectStore port: small files by name, some of which only the first writer can make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar


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
