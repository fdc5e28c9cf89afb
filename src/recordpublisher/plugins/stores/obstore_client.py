"""Opens clients of the library obstore for S3, Google Cloud Storage and Azure, and translates the errors of obstore."""

from __future__ import annotations

import atexit
import functools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.job_properties import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

from .back_ends import S3, back_end_of

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess


VALID = timedelta(minutes=5)
"""How long obstore keeps credentials. Credentials that the SDK returns are valid for longer than this."""
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_OF_GIVEN = {"session_token": "token"}
_QUERY = re.compile(r"\?\S*")
"""Matches the query part of a URL in a message. It may contain a signature."""


class ObjectLocation:
    """A location in S3, Google or Azure, with the client that reads and writes its objects.

    - `key`: the property that contains the URI.
    - `access`: the access to S3 that other clients also use; None to make one.
    - `given`: settings of the user, with obstore's names.

    Raises: ConfigurationError if the URI is not valid, if the client cannot be opened, or if the extra 'object-storage' is missing.
    """

    def __init__(
        self, uri: str, key: str, properties: Properties, access: AwsAccess | None = None, **given: str
    ) -> None:
        self.uri, self._given = uri, given
        self._access = access or (s3_access(properties) if back_end_of(uri) is S3 else None)
        try:
            _from_url(uri)
            self._client = None if self._access else open_object_store(uri, **given)
        except Exception as error:
            raise ConfigurationError(key, uri, reason=error_words(error)) from error

    async def refresh(self) -> None:
        """Find the credentials that are valid now. Call this before each use of the client. Raises: the errors of `AwsAccess.refresh`."""
        if self._access is not None:
            await self._access.refresh()

    @property
    def client(self) -> Any:
        """obstore's client for the location. Raises: ValueError or obstore's errors if it cannot be opened."""
        if self._client is None:
            assert self._access is not None
            self._client = open_object_store(self.uri, **s3_options(self._access, self._given))
        return self._client


def s3_access(properties: Properties, region: str | None = None, *, needs_keys: bool = True) -> AwsAccess:
    """Return the access to S3 for obstore, deltalake and pyiceberg. It has the region, endpoint and keys that the AWS SDK would use.

    - `region`: a region that takes precedence over the region of the job.
    - `needs_keys`: whether to find credentials. A client that already has keys needs none.

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
        """Return the newest credentials. If obstore got plain keys, it would add a token from the environment to them."""
        found = access.found
        theirs = {"access_key_id": found.access_key, "secret_access_key": found.secret_key, "token": found.token}
        return (own or theirs) | {"expires_at": datetime.now(UTC) + VALID}

    client: dict[str, Any] = {"allow_http": options["endpoint"].startswith("http:")}
    if found.ca_bundle is not None:
        client["root_certificate"] = Path(found.ca_bundle).read_bytes()
    return {**options, "credential_provider": keys, "client_options": client}


def open_object_store(uri: str, **options: Any) -> Any:
    """Return obstore's client for a URI. Without `options` it finds credentials in the environment.

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
    """Raise obstore's errors in the `with` block as errors of a store: StoreUnavailableError if a retry may help, else StateError."""
    from obstore.exceptions import BaseError, GenericError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        kind = StoreUnavailableError if isinstance(error, GenericError) else StateError
        raise kind(f"{place} cannot be used: {error_words(error)}") from error


def error_words(error: Exception) -> str:
    """Return the first line of an error, without URL queries.

    Further lines are left out, because obstore adds its own source code there.
    """
    _let_threads_end_at_exit()
    return _QUERY.sub("", str(error).partition("\n")[0])


EXIT_SECONDS = 0.1
"""How long an exit of the interpreter waits for the threads of obstore."""


@functools.cache
def _let_threads_end_at_exit() -> None:
    """Let the interpreter wait for `EXIT_SECONDS` at its exit. Called when a call of obstore has failed.

    obstore's threads still hold Python objects of a failed call for some milliseconds. If the interpreter ends in that time, they abort the
    process (exit code 134), whatever its result was.
    """
    atexit.register(time.sleep, EXIT_SECONDS)
