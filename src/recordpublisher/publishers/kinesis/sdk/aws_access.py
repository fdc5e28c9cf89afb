"""AwsAccess finds endpoint, region and keys as the SDK does, for clients of a service that are not the SDK's."""

from typing import Any, NamedTuple

from recordpublisher.publishers.errors import StoreUnavailableError, TransientError
from recordpublisher.publishers.properties.properties import Properties

from ..ca_bundle import ca_bundle_path
from ..endpoint import region_of
from ..error_translation import translate_errors
from .credentials import credentials_of, session_with_credentials


class AwsSettings(NamedTuple):
    """The settings with which a client makes the same calls as the SDK.

    - `ca_bundle`: the file of trusted CAs, or None for the client's own list.
    - `found_by`: the SDK's name of the provider that has given the keys.
    """

    endpoint: str
    region: str
    ca_bundle: str | None
    access_key: str = ""
    secret_key: str = ""
    token: str | None = None
    found_by: str = ""


class AwsAccess:
    """Asks an SDK client of the service, which knows every way to configure AWS. Owns the session, which renews the credentials.

    It keeps the settings that it found last, because obstore asks for them in threads of its own, where no event loop
    runs.

    - `endpoint`, `region`: the ones set for this service, if any.
    - `needs_keys`: whether to find keys; otherwise the client has keys already.

    Raises: ConfigurationError if the credentials are invalid or there is no region.
    """

    def __init__(
        self,
        service: str,
        properties: Properties,
        endpoint: str | None = None,
        region: str | None = None,
        *,
        needs_keys: bool = True,
    ) -> None:
        self.service, self._given, self._needs_keys = service, endpoint, needs_keys
        self._region = region or region_of(properties)
        self._session = session_with_credentials(properties, self._region)
        self._client: Any = None
        self._found: AwsSettings | None = None

    @property
    def found(self) -> AwsSettings:
        """The settings that were found last."""
        if self._found is None:
            raise AssertionError("AwsAccess was not refreshed")
        return self._found

    async def refresh(self) -> AwsSettings:
        """Return the settings that apply now, with valid credentials. Call this before each use of a client.

        Raises: KinesisError if a call fails, ConfigurationError if there are no credentials, StoreUnavailableError if
        the provider of the credentials cannot be reached.
        """
        try:
            self._found = await self._settings()
        except TransientError as error:
            raise StoreUnavailableError(f"there are no credentials of {self.service} now: {error}") from error
        return self._found

    async def _settings(self) -> AwsSettings:
        ca_bundle = ca_bundle_path(self._session)
        keys = await credentials_of(self._session) if self._needs_keys else None
        if self._client is None:
            # This client sends nothing, so if no keys are needed, any keys will do.
            given = {} if self._needs_keys else {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
            with translate_errors("CreateClient"):
                opened = self._session.create_client(
                    self.service, region_name=self._region, endpoint_url=self._given, **given
                )
                async with opened as client:
                    self._client = client.meta
        where = AwsSettings(str(self._client.endpoint_url), str(self._client.region_name), ca_bundle)
        if keys is None:
            return where
        found_by = (await self._session.get_credentials()).method
        return where._replace(
            access_key=keys.access_key, secret_key=keys.secret_key, token=keys.token or None, found_by=found_by
        )
