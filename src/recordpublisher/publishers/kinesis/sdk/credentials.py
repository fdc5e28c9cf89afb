"""Makes sessions of the SDK that sign calls with the credentials provider that the properties name."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiobotocore import credentials as aio
from botocore.exceptions import NoCredentialsError
from botocore.utils import FileWebIdentityTokenLoader

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    PROFILE_NAME,
    ROLE_ARN,
    ROLE_EXTERNAL_ID,
    ROLE_SESSION,
    ROLE_STS_ENDPOINT,
    SECRET_KEY,
    SESSION_TOKEN,
    WEB_IDENTITY_FILE,
)
from recordpublisher.publishers.safe_text import MASK

from ..credentials_without_sdk import provider_name
from ..error_mapping import translate_errors
from ..ports import is_header_text
from .session import SdkSession, profile_session


def session_with_credentials(properties: Properties, region: str, role: str | None = None) -> SdkSession:
    """Make an SDK session that signs calls with the provider that the properties name.

    `role`: the ARN of a role that the provider's credentials assume. If it is given, calls are signed with the role.

    Raises: ConfigurationError if the provider needs a property that is not set.
    """
    session = profile_session(properties)
    _CONFIGURE[provider_name(properties)](session, properties, region)
    if role is None:
        return session
    in_role = profile_session(properties)
    _use_role(in_role, _SourceCredentials(session), role, properties, region)
    return in_role


def renewal_of(session: Any) -> Callable[[], Awaitable[bool]]:
    """Return a function that renews the credentials of `session`, for `retry_with_new_token`.

    Call this at the beginning of each request: credentials that were renewed after that are not renewed again.
    """
    began = time.monotonic()

    async def renew() -> bool:
        with translate_errors("GetCredentials"):
            return bool(await session.renew_credentials(began))

    return renew


async def credentials_of(session: Any) -> Any:
    """Return the keys of a session that are valid now (`access_key`, `secret_key`, `token`), for a client of another package.

    Raises: KinesisError if the provider fails, ConfigurationError if there are no credentials.
    """
    with translate_errors("GetCredentials"):
        if (found := await session.get_credentials()) is None:
            raise NoCredentialsError
        return await found.get_frozen_credentials()


# --- providers ----------------------------------------------------------------------------------------------------------------------


def _auto(session: SdkSession, properties: Properties, region: str) -> None:
    """Do nothing. With the provider AUTO, the SDK uses its own chain of providers."""


def _basic(session: SdkSession, properties: Properties, region: str) -> None:
    keys = _required(properties, ACCESS_KEY_ID), _required(properties, SECRET_KEY)
    for declared in (ACCESS_KEY_ID, SECRET_KEY, SESSION_TOKEN):
        _check_header_text(properties, declared)
    session.set_credentials(*keys, properties.value(SESSION_TOKEN))


def _env_var(session: SdkSession, properties: Properties, region: str) -> None:
    session.register_component("credential_provider", aio.AioCredentialResolver([aio.AioEnvProvider()]))


def _profile(session: SdkSession, properties: Properties, region: str) -> None:
    # The profile must be set. Nothing else is needed, because the SDK's own chain begins with the session's profile.
    _required(properties, PROFILE_NAME)


def _assume_role(session: SdkSession, properties: Properties, region: str) -> None:
    """Make `session` sign calls with the role of the properties. The role is assumed with the first credentials that are set:

    1. the basic keys,
    2. the profile,
    3. the credentials that the SDK's own chain finds.
    """
    source = profile_session(properties)
    if properties.is_set(ACCESS_KEY_ID):
        _basic(source, properties, region)
    _use_role(session, _SourceCredentials(source), _required(properties, ROLE_ARN), properties, region)


def _web_identity(session: SdkSession, properties: Properties, region: str) -> None:
    if not properties.is_set(WEB_IDENTITY_FILE) and not properties.is_set(ROLE_ARN):
        return  # The SDK's own chain reads AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN.
    fetcher = aio.AioAssumeRoleWithWebIdentityCredentialFetcher(
        _sts_clients(properties, region),
        _token_loader(_required(properties, WEB_IDENTITY_FILE)),
        _required(properties, ROLE_ARN),
        extra_args=_role_arguments(properties),
    )
    _use_refreshable(session, fetcher, "assume-role-with-web-identity")


_CONFIGURE = {
    "AUTO": _auto,
    "BASIC": _basic,
    "ENV_VAR": _env_var,
    "PROFILE": _profile,
    "ASSUME_ROLE": _assume_role,
    "WEB_IDENTITY_TOKEN": _web_identity,
}


def _use_role(session: SdkSession, source: _SourceCredentials, role: str, properties: Properties, region: str) -> None:
    """Make `session` sign calls with a role. The credentials of `source` assume the role."""
    fetcher = aio.AioAssumeRoleCredentialFetcher(
        _sts_clients(properties, region), source, role, extra_args=_role_arguments(properties)
    )
    session.renew_source_first(source.session)
    _use_refreshable(session, fetcher, "assume-role")


class _SourceCredentials:
    def __init__(self, session: SdkSession) -> None:
        self.session = session

    async def get_frozen_credentials(self) -> Any:
        credentials = await self.session.get_credentials()
        if credentials is None:
            reason = (
                "no credentials were found with which to assume the role. Set them in the environment or in a profile"
            )
            raise ConfigurationError(CREDENTIALS_PROVIDER.key, "ASSUME_ROLE", reason=reason)
        return await credentials.get_frozen_credentials()


def _use_refreshable(session: SdkSession, fetcher: Any, method: str) -> None:
    credentials = aio.AioDeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method=method)
    session.register_component("credential_provider", _FixedProvider(credentials))


class _FixedProvider:
    """A credentials provider that always returns the same credentials (the component `credential_provider` of an SDK session)."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> Any:
        return self._credentials


def _sts_clients(properties: Properties, region: str) -> Any:
    endpoint = properties.value(ROLE_STS_ENDPOINT)
    session = profile_session(properties)  # The profile may set the endpoint, trusted CAs and FIPS for calls to STS.
    return partial(session.create_client, region_name=region, endpoint_url=endpoint)


def _role_arguments(properties: Properties) -> dict[str, str]:
    given = {"RoleSessionName": properties.value(ROLE_SESSION), "ExternalId": properties.value(ROLE_EXTERNAL_ID)}
    return {name: value for name, value in given.items() if value is not None}


def _token_loader(path: str) -> Any:
    load = FileWebIdentityTokenLoader(path)

    def load_checked() -> Any:
        try:
            return load()
        except OSError as error:
            raise ConfigurationError(WEB_IDENTITY_FILE.key, path, "a readable file", reason=str(error)) from error

    return load_checked


def _required(properties: Properties, declared: Property[str | None]) -> str:
    value = properties.value(declared)
    if value is None:
        needed_by = CREDENTIALS_PROVIDER if properties.is_set(CREDENTIALS_PROVIDER) else None
        other = SECRET_KEY if declared is ACCESS_KEY_ID else ACCESS_KEY_ID
        reason = (
            f"needed by {needed_by.key}={provider_name(properties)}"
            if needed_by
            else f"needed together with {other.key}"
        )
        raise ConfigurationError(declared.key, None, declared.valid, reason=reason)
    return value


def _check_header_text(properties: Properties, declared: Property[str | None]) -> None:
    """Check that the value of a property can be sent in an HTTP header. Raises: ConfigurationError if it is not printable ASCII."""
    value = properties.value(declared)
    if value is not None and not is_header_text(value):
        raise ConfigurationError(declared.key, MASK, "printable ASCII, without control characters")
