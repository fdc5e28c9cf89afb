"""Finds the store for a location: a path, or a file:, s3:, dynamodb:, gs:, abfss:, sqlite: or postgresql: URI."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, VersionedValue
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.log_fields import MASK
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.manager import load_registry
from ..host.registry import Registry
from .folder_store import path_of

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
"""A scheme has at least two letters, because `C:/` is a drive."""
_BACK_ENDS = {"": "FILE", "file": "FILE", "dynamodb": "DYNAMODB"}
_FORMS = {
    "FILE": "a folder",
    "S3": "s3://bucket/prefix",
    "DYNAMODB": "dynamodb://table/job",
    "GOOGLE": "gs://bucket/prefix",
    "AZURE": "abfss://container@account.dfs.core.windows.net/prefix",
    "SQL": "postgresql://user@host/database or sqlite:////path/file.db",
}
_REFUSED = {
    "hdfs": "this library has no client of HDFS",
    "dbfs": "DBFS does not promise that a rename is atomic, and conditional writes to a folder need that",
}
OBJECT_STORES = ("S3", "GOOGLE", "AZURE")
"""The back ends whose locations have objects."""
NOT_FOR_CLAIMS = ("SQL",)
"""The back ends that cannot store claims, because every task of a query would open a session."""


def conditional_store_of(
    location: str,
    key: str,
    properties: Properties,
    registry: Registry | None = None,
    *,
    refused: Collection[str] = (),
) -> ConditionalStore:
    """Return the store at a location, which is the value of the property `key`.

    It is a built-in store, or a plugin's store that is selected by the location's scheme. `properties` have region, credentials and the
    job's name.

    Raises: ConfigurationError if no store has this scheme, its back end is in `refused`, or the location is not valid.
    """
    stores, name = (registry or load_registry()).stores, back_end_of(location)
    names = [known for known in stores.names() if known not in refused]
    if name.lower() not in map(str.lower, names):
        forms = [form for known, form in _FORMS.items() if known in names]
        forms += [f"{plugin.lower()}:..." for plugin in names if plugin not in _FORMS]
        reason = _REFUSED.get(name) or stores.why_absent()
        raise ConfigurationError(key, location, f"{', '.join(forms[:-1])} or {forms[-1]}", reason=reason)
    return stores.make(name, key, location, key, properties)


def back_end_of(location: str) -> str:
    """Return FILE, S3, DYNAMODB, GOOGLE, AZURE or SQL; for any other scheme, return the scheme itself.

    A location without a scheme is a path.
    """
    if location.startswith("file:"):
        return "FILE"
    found = _SCHEME.match(location)
    scheme = "" if found is None else found[1].partition("+")[0].lower()
    return _BACK_ENDS.get(scheme, scheme)


_BACK_ENDS |= dict.fromkeys(("s3", "s3a", "s3n"), "S3")
_BACK_ENDS |= {"gs": "GOOGLE", "abfs": "AZURE", "abfss": "AZURE"}
_BACK_ENDS |= dict.fromkeys(("sqlite", "postgresql", "postgres"), "SQL")


def missing_folder(location: str) -> Path | None:
    """Return the folder at a location if it does not exist, and None for any other location."""
    if back_end_of(location) != "FILE":
        return None
    folder = Path(path_of(location, STATE_URI.key))
    return None if folder.is_dir() else folder


# Common parts of stores in remote services: objects below a prefix, concurrent calls, and checks of a URI.

T = TypeVar("T")


class ConditionalObjects(ConditionalStore):
    """A conditional store of objects below a prefix. The version of an object is its ETag.

    Each write has a random id in the object's metadata. The id shows whether a refused write collided with its own first attempt or with
    the write of another process.
    """

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Put the object if there is none, and return its version."""
        return await self._put(name, value, None)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Put the object if the stored one still has this ETag, and return the new version."""
        return await self._put(name, value, expected)

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Return the values of the objects, which are read at the same time."""
        return await get_side_by_side(self.get, names)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """List the names, then read the objects at the same time."""
        return await self.get_all(await self.list_names(prefix))

    async def delete(self, *names: str) -> None:
        """Delete the objects, each with its own call, at the same time."""
        await side_by_side(map(self._delete, names))

    @abstractmethod
    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        """Put the object if the stored one has the ETag `expected`, or if it is None and there is no object."""

    @abstractmethod
    async def _delete(self, name: str) -> None:
        """Delete an object, if there is one."""


async def get_side_by_side(
    get: Callable[[str], Coroutine[Any, Any, VersionedValue | None]], names: Iterable[str]
) -> dict[str, VersionedValue]:
    """Read the names at the same time with `get`, and return the stored value of each name that has one."""
    names = list(names)
    values = await side_by_side(map(get, names))
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the calls at the same time, and return their results in order. The first error ends the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def refuse_cut(key: str, uri: str, valid: str) -> None:
    """Check that a URI has no `#` or `?`. Clients would cut it off there, and two jobs could then share one place.

    Raises: ConfigurationError if it has one of them. The error does not show the end of the URI, which may be a signature.
    """
    if (found := re.search("[?#]", uri)) is not None:
        reason = (
            f"clients of such a store cut the location at {found[0]!r}, so two jobs could share one place; use another character. "
            "What follows it is not shown, because it may be a secret"
        )
        raise ConfigurationError(key, uri[: found.start()] + found[0], valid, reason=reason)


def refuse_credentials(key: str, uri: str, place: str, valid: str) -> None:
    """Check that a URI has no credentials, because they would be shown wherever the place is named.

    `place`: the part of the URI between :// and the next slash. Raises: ConfigurationError, without the credentials, if there are
    any.
    """
    if "@" in place or ":" in place:
        shown = re.sub(r"://.*@", f"://{MASK}@", uri)
        reason = "it would be shown with its credentials; remove them, and set aws.credentials.provider"
        raise ConfigurationError(key, shown, valid, reason=reason)
