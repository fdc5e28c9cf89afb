"""WriteOnceStore: files and their manifests by name, each written once; over a conditional store that takes large values."""

from __future__ import annotations

from collections.abc import Iterable

from .conditional_store import ConditionalStore, ConflictError


class WriteOnceStore:
    """Objects named `folder/name`. Safe from many processes at once; the calls of one store belong to one event loop.

    Raises everywhere: StateError when the store cannot be reached or written.
    """

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store

    @property
    def poll_seconds(self) -> float:
        """How long to wait between two reads for what others put: a read may cost money."""
        return self._store.poll_seconds

    async def put_if_absent(self, name: str, content: bytes) -> bytes:
        """Store durably unless somebody was first; returns what is stored: the content given, or the winner's."""
        try:
            await self._store.put_if_absent(name, content)
        except ConflictError as error:
            return content if error.current is None else error.current.value
        return content

    async def put(self, name: str, content: bytes) -> None:
        """Store durably under a name that nobody else uses. If it is there already, an earlier attempt came through."""
        await self.put_if_absent(name, content)

    async def get(self, name: str) -> bytes | None:
        """What is stored under the name, if anything."""
        found = await self._store.get(name)
        return None if found is None else found.value

    async def names(self, prefix: str) -> list[str]:
        """The names that begin so, sorted; the prefix has the whole folder."""
        return list(await self._store.list_names(prefix))

    async def delete(self, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already do not matter."""
        await self._store.delete(*names)

    async def close(self) -> None:
        """Release what the store holds. It may be used again."""
        await self._store.close()
