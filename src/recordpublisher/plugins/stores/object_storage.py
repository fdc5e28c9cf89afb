"""Object storage with the library obstore: the conditional store in Google Cloud Storage and Azure, and the locations of file sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from recordpublisher.fetcher.conditional_store import ConflictError, VersionedValue, new_version, pause
from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.job_properties import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

from .by_location import ConditionalObjects, refuse_credentials, refuse_cut

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess


FORMS = "gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix"
_URI = re.compile(r"gs://[^/]+(/.*)?|abfss?://[^/@]+@[^/@]+(/.*)?")
_WRITE_ID = "writeid"
"""The name of the metadata with the id of a write. Azure accepts only names that are valid as C# variables."""
_ATTEMPTS = 10
VALID = timedelta(minutes=5)
"""How long obstore keeps credentials. When the SDK returns credentials, they are valid for longer than this."""
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_OF_GIVEN = {"session_token": "token"}
_QUERY = re.compile(r"\?\S*")
"""The query part of a URL in a message, which may contain a signature."""


class GoogleAzureStore(ConditionalObjects):
    """Stores each value as an object of a bucket (Google) or container (Azure), below a prefix.

    Owns the client. `key` is the property that contains the URI.

    Raises: ConfigurationError if the URI is not valid or has credentials, or if the client cannot be opened.
    """

    def __init__(
        self, uri: str, key: str, properties: Properties, open_client: Callable[[str], Any] | None = None
    ) -> None:
        refuse_cut(key, uri, FORMS)
        host = urlsplit(uri).netloc
        refuse_credentials(key, uri, host if uri.startswith("gs:") else host.replace("@", "", 1), FORMS)
        if not _URI.fullmatch(uri):
            raise ConfigurationError(key, uri, FORMS)
        self.place = uri
        try:
            self._client = (open_client or open_object_store)(uri)
        except Exception as error:
            raise ConfigurationError(key, uri, FORMS, reason=words_of(error)) from error

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and version of an object, or None."""
        return (await self._get(name)).entry

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """List the folder of the prefix, and select the names with the prefix, because obstore lists folders only."""
        found: dict[str, str] = {}
        with as_state_errors(self.place):
            async for chunk in self._client.list(prefix.rpartition("/")[0] or None):
                found |= {meta["path"]: _version(meta) for meta in chunk if meta["path"].startswith(prefix)}
        return dict(sorted(found.items()))

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """List the names with the prefix, up to `before`."""
        return [name for name in await self.list_versions(prefix) if before is None or name < before]

    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        write_id = new_version()
        for attempt in range(_ATTEMPTS):
            if (
                attempt > 1
            ):  # The first repetition needs no pause: it finds out whether the first attempt had succeeded.
                await pause(attempt)
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
    """A stored value with its ETag, the id of the write that stored it, and the identity with which it can be replaced.

    All are None if nothing is stored.

    Google identifies an object by its generation, Azure by its ETag.
    """

    entry: VersionedValue | None = None
    write_id: str | None = None
    identity: dict[str, str] | None = None


def _version(meta: Any) -> str:
    """Return the ETag without quotes, which Azure's headers have and its listings do not."""
    return str(meta["e_tag"]).strip('"')


class ObjectLocation:
    """A location in S3, Google or Azure. Owns the client that reads and writes its objects.

    - `key`: the property that contains the URI.
    - `access`: the access to S3, if other clients use it too.
    - `given`: settings of the user, with obstore's names.

    Raises: ConfigurationError if the URI is not valid, the client cannot be opened, or the extra is missing.
    """

    def __init__(
        self, uri: str, key: str, properties: Properties, access: AwsAccess | None = None, **given: str
    ) -> None:
        self.uri, self._given = uri, given
        self._access = access or (s3_access(properties) if uri.startswith("s3:") else None)
        try:
            _from_url(uri)
            self._client = None if self._access else open_object_store(uri, **given)
        except Exception as error:
            raise ConfigurationError(key, uri, reason=words_of(error)) from error

    async def refresh(self) -> None:
        """Find the credentials that are valid now. Call this before each use of the client. Raises: the errors of `AwsAccess.refresh`."""
        if self._access is not None:
            await self._access.refresh()

    @property
    def client(self) -> Any:
        """obstore's client. Raises: ValueError or obstore's errors if it cannot be opened."""
        if self._client is None:
            assert self._access is not None
            self._client = open_object_store(self.uri, **s3_options(self._access, self._given))
        return self._client


def s3_access(properties: Properties, region: str | None = None, *, needs_keys: bool = True) -> AwsAccess:
    """Return the access to S3 for obstore, deltalake and pyiceberg. It is the same as the access of the SDK's own client.

    - `region`: a region that takes precedence over the region of the job.
    - `needs_keys`: whether to find credentials. A client that has keys already needs none.

    Raises: ConfigurationError if the credentials are wrong or there is no region.
    """
    from recordpublisher.publishers.kinesis.sdk.aws_service import (
        AwsAccess,  # Imported here because it loads the AWS SDK.
    )

    return AwsAccess("s3", properties, properties.value(STATE_ENDPOINT), region, needs_keys=needs_keys)


def s3_options(access: AwsAccess, given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options of obstore's client for S3.

    - `given`: settings of the user, with obstore's names. They take precedence.
    """
    found = access.found
    options: dict[str, Any] = {"region": found.region, "endpoint": found.endpoint} | dict(given or {})
    own = {_OF_GIVEN.get(name, name): options.pop(name) for name in _KEYS if name in options}

    def keys() -> dict[str, Any]:
        """Return the newest credentials. obstore itself would complete the keys with a token from the environment."""
        found = access.found
        theirs = {"access_key_id": found.access_key, "secret_access_key": found.secret_key, "token": found.token}
        return (own or theirs) | {"expires_at": datetime.now(UTC) + VALID}

    client: dict[str, Any] = {"allow_http": options["endpoint"].startswith("http:")}
    if found.ca_bundle is not None:
        client["root_certificate"] = Path(found.ca_bundle).read_bytes()
    return {**options, "credential_provider": keys, "client_options": client}


def open_object_store(uri: str, **options: Any) -> Any:
    """Return obstore's client. Without `options` it finds credentials in the environment.

    Raises: ImportError if the extra 'object-storage' is missing; obstore's errors.
    """
    from_url = _from_url(uri)
    return from_url(uri, retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)}, **options)


def _from_url(uri: str) -> Any:
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise ImportError(f"{uri} needs the extra 'object-storage': {install_command('object-storage')}") from error
    return from_url


@contextmanager
def as_state_errors(place: str) -> Iterator[None]:
    """Translate the errors of obstore: StoreUnavailableError if a retry may help, else StateError."""
    from obstore.exceptions import BaseError, GenericError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        kind = StoreUnavailableError if isinstance(error, GenericError) else StateError
        raise kind(f"{place} cannot be used: {words_of(error)}") from error


def words_of(error: Exception) -> str:
    """Return the first line of an error without URL queries. obstore appends its own source in further lines."""
    return _QUERY.sub("", str(error).partition("\n")[0])
