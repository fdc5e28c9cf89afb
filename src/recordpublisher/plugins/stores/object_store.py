"""Stores values as objects of a remote service: the part that S3, Google and Azure share, and checks of URIs."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, VersionedValue
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.safe_text import MASK

T = TypeVar("T")


class ConditionalObjects(ConditionalStore):
    """A conditional store of objects below a prefix. The version of an object is its ETag.

    Each write has a random id in the object's metadata. If the service refuses a write, the id in the stored object shows why: an earlier
    attempt of the same write has succeeded, or another process has written.
    """

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Put the object if there is none. Return its version."""
        return await self._put(name, value, None)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Put the object if the stored object still has the ETag `expected`. Return the new version."""
        return await self._put(name, value, expected)

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Return the values of the objects. They are read at the same time."""
        return await get_side_by_side(self.get, names)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return the values whose names have the prefix. The names are listed, then the objects are read at the same time."""
        return await self.get_all(await self.list_names(prefix))

    async def delete(self, *names: str) -> None:
        """Delete the objects at the same time, each with a call of its own."""
        await side_by_side(map(self._delete, names))

    @abstractmethod
    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        """Put the object if the stored object has the ETag `expected`, or, if `expected` is None, if there is no object.

        Return its ETag.
        """

    @abstractmethod
    async def _delete(self, name: str) -> None:
        """Delete an object, if there is one."""


async def get_side_by_side(
    get: Callable[[str], Coroutine[Any, Any, VersionedValue | None]], names: Iterable[str]
) -> dict[str, VersionedValue]:
    """Call `get` for all names at the same time. Return the value of each name that has one."""
    names = list(names)
    values = await side_by_side(map(get, names))
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the calls at the same time, and return their results in order. The first error cancels the other calls."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def refuse_query_and_fragment(key: str, uri: str, valid: str) -> None:
    """Check that a URI has no `#` or `?`. Clients would cut the URI off there, so that two jobs could share one place.

    Raises: ConfigurationError if the URI has one. The error does not show the end of the URI, because it may be a signature.
    """
    if (found := re.search("[?#]", uri)) is not None:
        reason = (
            f"clients of such a store cut the location at {found[0]!r}, so two jobs could share one place; use another character. "
            "What follows it is not shown, because it may be a secret"
        )
        raise ConfigurationError(key, uri[: found.start()] + found[0], valid, reason=reason)


def refuse_credentials(key: str, uri: str, place: str, valid: str) -> None:
    """Check that a URI has no credentials, because messages show the URI.

    - `place`: the part of the URI between :// and the next slash.

    Raises: ConfigurationError if it has credentials. The error does not show them.
    """
    if "@" in place or ":" in place:
        shown = re.sub(r"://.*@", f"://{MASK}@", uri)
        reason = "it would be shown with its credentials; remove them, and set aws.credentials.provider"
        raise ConfigurationError(key, shown, valid, reason=reason)
