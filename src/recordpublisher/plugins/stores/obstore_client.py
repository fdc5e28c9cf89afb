"""obstore, the client of Google, of Azure, and of file sinks in S3: how it is opened, its errors, and its credentials for S3."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import StateError, StoreUnavailableError, TransientError
from recordpublisher.publishers.kinesis.endpoint import region_of
from recordpublisher.publishers.kinesis.sdk.credentials import credentials_of, session_with_credentials
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

VALID = timedelta(minutes=5)
"""For how long obstore keeps credentials; the SDK's are valid for longer when it gives them."""
_QUERY = re.compile(r"\?\S*")
"""Of a URL in a message: it may have a signature."""


def open_object_store(uri: str, **options: Any) -> Any:
    """obstore's client; without `options` it finds credentials in the environment. Raises: ImportError, obstore's errors."""
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise ImportError(f"{uri} needs the extra 'object-storage': {install_command('object-storage')}") from error
    return from_url(uri, retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)}, **options)


@contextmanager
def as_state_errors(place: str) -> Iterator[None]:
    """The errors of obstore as our own: StoreUnavailableError when a retry may help, else StateError."""
    from obstore.exceptions import BaseError, GenericError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        kind = StoreUnavailableError if isinstance(error, GenericError) else StateError
        raise kind(f"{place} cannot be used: {words_of(error)}") from error


def words_of(error: Exception) -> str:
    """The first line: obstore appends its own source."""
    return _QUERY.sub("", str(error).partition("\n")[0])


class S3Access:
    """How obstore and deltalake reach S3: with the region, the endpoint and the credentials of the job's other calls.

    Owns the credentials that were found last. obstore asks for them in threads of its own, where no event loop runs."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError for wrong credentials or no region."""
        self._region, self._endpoint = region_of(properties), properties.value(STATE_ENDPOINT)
        self._session = session_with_credentials(properties, self._region)
        self._found: dict[str, Any] = {}

    async def refresh(self) -> dict[str, Any]:
        """The credentials now, by obstore's names; to be called before each use of the client.

        Raises: KinesisError, ConfigurationError without credentials; StoreUnavailableError when those who give them are away.
        """
        try:
            found = await credentials_of(self._session)
        except TransientError as error:
            raise StoreUnavailableError(f"there are no credentials of S3 now: {error}") from error
        token = {"token": found.token} if found.token else {}
        self._found = {"access_key_id": found.access_key, "secret_access_key": found.secret_key, **token}
        return self._found

    def options(self) -> dict[str, Any]:
        """What obstore's client gets."""
        endpoint = {"endpoint": self._endpoint} if self._endpoint else {}
        plain = {"client_options": {"allow_http": True}} if (self._endpoint or "").startswith("http:") else {}
        return {"region": self._region, "credential_provider": self._credentials, **endpoint, **plain}

    def _credentials(self) -> dict[str, Any]:
        return {**self._found, "expires_at": datetime.now(UTC) + VALID}
