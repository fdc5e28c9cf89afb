"""What stores of remote services have in common: no credentials in a URI, calls side by side, and objects below a prefix."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, VersionedValue
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.password_masking import MASK

T = TypeVar("T")


def refuse_cut(key: str, uri: str, valid: str) -> None:
    """Refuse a URI with `#` or `?`: clients cut it there, so that two jobs would share one place.

    Raises: ConfigurationError, which does not show the end of the URI: it may be a signature.
    """
    if (found := re.search("[?#]", uri)) is not None:
        reason = (
            f"clients of such a store cut it at {found[0]!r}, and two places could become one. Use another character"
        )
        raise ConfigurationError(key, uri[: found.start()] + found[0], valid, reason=reason)


def refuse_credentials(key: str, uri: str, place: str, valid: str) -> None:
    """Refuse credentials in a URI, which would be shown wherever the place is named. `place`: of the URI, between :// and the next slash.

    Raises: ConfigurationError, which does not show them.
    """
    if "@" in place or ":" in place:
        shown = re.sub(r"://.*@", f"://{MASK}@", uri)
        reason = "credentials do not belong there: aws.credentials.provider says where they come from"
        raise ConfigurationError(key, shown, valid, reason=reason)


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of calls that run at the same time, in order. The first error ends the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def get_side_by_side(
    get: Callable[[str], Coroutine[Any, Any, VersionedValue | None]], names: Iterable[str]
) -> dict[str, VersionedValue]:
    """The stored values of these names, without those that have none, read by `get` at the same time."""
    names = list(names)
    values = await side_by_side(map(get, names))
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


class ConditionalObjects(ConditionalStore):
    """A conditional store of objects below a prefix. The version of an object is its ETag.

    Each write has a random id in the object's metadata. It shows whether a refused write met its own first attempt or another process's
    write.
    """

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Put if there is no object."""
        return await self._put(name, value, None)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Put if the object is still the one that has this ETag."""
        return await self._put(name, value, expected)

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
    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        """Put if the object has this ETag; None: if there is none."""

    @abstractmethod
    async def _delete(self, name: str) -> None:
        """Delete an object, if it is there."""
