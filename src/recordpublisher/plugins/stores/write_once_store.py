"""WriteOnceStore: objects by name, each written once, in a conditional store that accepts large values."""

from __future__ import annotations

from collections.abc import Iterable

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError


class WriteOnceStore:
    """Objects named `folder/name`. Safe from many processes at once; the calls of one store belong to one event loop.

    Every method raises: StateError when the store cannot be reached or written.
    """

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store

    @property
    def poll_seconds(self) -> float:
        """How long to wait between two reads when polling for new objects: a read may cost money."""
        return self._store.poll_seconds

    async def put_if_absent(self, name: str, content: bytes) -> bytes:
        """Store an object durably unless the name is taken; returns the stored content: this one, or the earlier one."""
        try:
            await self._store.put_if_absent(name, content)
        except ConflictError as error:
            return content if error.current is None else error.current.value
        return content

    async def put(self, name: str, content: bytes) -> None:
        """Store an object durably under a name that nobody else uses. If it exists already, an earlier attempt has succeeded."""
        await self.put_if_absent(name, content)

    async def get(self, name: str) -> bytes | None:
        """The stored object; None when there is none."""
        found = await self._store.get(name)
        return None if found is None else found.value

    async def names(self, prefix: str) -> list[str]:
        """The names with this prefix, sorted."""
        return list(await self._store.list_names(prefix))

    async def delete(self, names: Iterable[str]) -> None:
        """Delete objects. Names without an object are ignored."""
        await self._store.delete(*names)

    async def close(self) -> None:
        """Release the store's resources. It may be used again."""
        await self._store.close()
