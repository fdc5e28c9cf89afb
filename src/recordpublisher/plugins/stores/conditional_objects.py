"""ConditionalObjects: what stores of objects have in common: each object is read and deleted by a call of its own."""

from abc import abstractmethod
from collections.abc import Iterable

from recordpublisher.fetcher.conditional_store import ConditionalStore, VersionedValue

from .store_service import get_side_by_side, side_by_side


class ConditionalObjects(ConditionalStore):
    """A conditional store of objects below a prefix. The version of an object is its ETag.

    Each write has a random id in the object's metadata. It shows whether a refused write met its own first attempt or another process's
    write.
    """

    poll_seconds = 0.5

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Read the objects side by side."""
        return await get_side_by_side(self.get, names)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """List, then read the objects, side by side."""
        return await self.get_all(await self.list_names(prefix))

    async def delete(self, *names: str) -> None:
        """Delete one by one, side by side."""
        await side_by_side(map(self._delete, names))

    @abstractmethod
    async def _delete(self, name: str) -> None:
        """Delete an object, if it is there."""
