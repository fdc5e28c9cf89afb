"""The conditional store in Google Cloud Storage (GOOGLE) and Azure Blob Storage (AZURE), with the library obstore."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from recordpublisher.fetcher.conditional_store import ConflictError, VersionedValue, new_version, pause_after_conflict
from recordpublisher.publishers.errors import ConfigurationError, StoreUnavailableError
from recordpublisher.publishers.properties.properties import Properties

from .back_ends import AZURE, GOOGLE, forms_of
from .object_store import ConditionalObjects, refuse_credentials, refuse_query_and_fragment
from .obstore_client import as_state_errors, error_words, open_object_store

FORMS = forms_of([GOOGLE, AZURE])
_URI = re.compile(r"gs://[^/]+(/.*)?|abfss?://[^/@]+@[^/@]+(/.*)?")
_WRITE_ID = "writeid"
"""The name of the metadata entry with the id of a write. Azure accepts only names that are valid as C# variables."""
_ATTEMPTS = 10


class GoogleAzureStore(ConditionalObjects):
    """Stores each value as an object of a bucket (Google) or container (Azure), below a prefix.

    - `key`: the property that contains the URI.

    Raises: ConfigurationError if the URI is not valid or has credentials, or if the client cannot be opened.
    """

    def __init__(
        self, uri: str, key: str, properties: Properties, open_client: Callable[[str], Any] | None = None
    ) -> None:
        refuse_query_and_fragment(key, uri, FORMS)
        host = urlsplit(uri).netloc
        refuse_credentials(key, uri, host if uri.startswith("gs:") else host.replace("@", "", 1), FORMS)
        if not _URI.fullmatch(uri):
            raise ConfigurationError(key, uri, FORMS)
        self.place = uri
        try:
            self._client = (open_client or open_object_store)(uri)
        except Exception as error:
            raise ConfigurationError(key, uri, FORMS, reason=error_words(error)) from error

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and version of an object, or None if there is no object."""
        return (await self._get(name)).entry

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Return the version of each object whose name has the prefix, in the order of names."""
        found: dict[str, str] = {}
        with as_state_errors(self.place):
            async for chunk in self._client.list(prefix.rpartition("/")[0] or None):
                found |= {meta["path"]: _version(meta) for meta in chunk if meta["path"].startswith(prefix)}
        return dict(sorted(found.items()))

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix. If `before` is given, return only those that sort before it."""
        return [name for name in await self.list_versions(prefix) if before is None or name < before]

    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        write_id = new_version()
        for attempt in range(_ATTEMPTS):
            # The first repetition needs no pause: it finds out whether the first attempt had succeeded.
            if attempt > 1:
                await pause_after_conflict(attempt)
            found = _Found() if attempt == 0 and expected is None else await self._get(name)
            version = None if found.entry is None else found.entry.version
            if version is not None and found.write_id == write_id:
                return version
            if expected != version:
                raise ConflictError(self.place, name, found.entry)
            with as_state_errors(self.place):
                try:
                    stored = await self._client.put_async(
                        name, value, mode=found.identity or "create", attributes={_WRITE_ID: write_id}
                    )
                except (AlreadyExistsError, PreconditionError):
                    continue  # The write collided with another one, or with its own first attempt.
                return _version(stored)
        raise StoreUnavailableError(
            f"{name} in {self.place} could not be written: each of {_ATTEMPTS} attempts collided with a write of another process"
        )

    async def _get(self, name: str) -> _Found:
        with as_state_errors(self.place):
            try:
                found = await self._client.get_async(name)
            except FileNotFoundError:
                return _Found()
            value = bytes(await found.bytes_async())
            meta = found.meta
            identity = {key: str(meta[key]) for key in ("e_tag", "version") if meta[key] is not None}
            return _Found(VersionedValue(value, _version(meta)), found.attributes.get(_WRITE_ID), identity)

    async def _delete(self, name: str) -> None:
        with as_state_errors(self.place), suppress(FileNotFoundError):
            await self._client.delete_async(name)


class _Found(NamedTuple):
    """A stored object. All fields are None if there is no object.

    - `entry`: the object's value and ETag.
    - `write_id`: the id of the write that stored it.
    - `identity`: what the object must still have to be replaced: its generation (Google) or its ETag (Azure).
    """

    entry: VersionedValue | None = None
    write_id: str | None = None
    identity: dict[str, str] | None = None


def _version(meta: Any) -> str:
    """Return an object's ETag without quotes. Azure sends the quotes in headers, but not in listings."""
    return str(meta["e_tag"]).strip('"')
