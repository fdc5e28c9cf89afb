"""session_with_credentials: an SDK session with the credentials provider that the properties name."""

import copy
import functools
from typing import Any

from aiobotocore import credentials as aio
from aiobotocore.config import AioConfig
from aiobotocore.hooks import AioHierarchicalEmitter
from aiobotocore.session import AioSession
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError, NoCredentialsError, ProfileNotFound
from botocore.loaders import create_loader
from botocore.utils import FileWebIdentityTokenLoader

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.password_masking import MASK
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.access import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    PROFILE_NAME,
    PROFILE_PATH,
    ROLE_ARN,
    ROLE_EXTERNAL_ID,
    ROLE_SESSION,
    ROLE_STS_ENDPOINT,
    SECRET_KEY,
    SESSION_TOKEN,
    WEB_IDENTITY_FILE,
)
from recordpublisher.publishers.properties.properties import Properties

from ..error_mapping import translate_errors
from ..known_access import is_header_text, provider_name
from .checked_credentials import CheckedCredentials, check_keys, sdk_errors
from .internals import BoundedHttpSession, bound_credential_processes, forget_credentials


def session_with_credentials(properties: Properties, region: str, role: str | None = None) -> AioSession:
    """Make an SDK session whose clients sign with the provider that the properties name, or with a role that those credentials assume.

    Raises: ConfigurationError when the provider needs a property that is not set.
    """
    session = profile_session(properties)
    _CONFIGURE[provider_name(properties)](session, properties, region)
    if role is None:
        return session
    in_role = profile_session(properties)
    _use_role(in_role, _SourceCredentials(session), role, properties, region)
    return in_role


async def load_credentials(session: AioSession) -> None:
    """Find the credentials as the first call does. Raises: the SDK's errors, NoCredentialsError where there are none."""
    credentials = await session.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    await credentials.get_frozen_credentials()


def profile_session(properties: Properties) -> AioSession:
    """Make an SDK session with the profile that the properties, or else the environment, name.

    Raises: ConfigurationError for a profile that does not exist. The SDK would report it only
    later, at its first look-up.
    """
    session = _Session(profile=properties.value(PROFILE_NAME))
    if (path := properties.value(PROFILE_PATH)) is not None:
        session.set_config_variable("credentials_file", path)
    try:
        session.get_scoped_config()
    except ProfileNotFound as error:
        key = PROFILE_NAME.key if properties.is_set(PROFILE_NAME) else "AWS_PROFILE"
        raise ConfigurationError(key, session.profile, "a profile of the AWS configuration files") from error
    return session


def _auto(session: AioSession, properties: Properties, region: str) -> None:
    """Keep the SDK's own chain."""


def _basic(session: AioSession, properties: Properties, region: str) -> None:
    keys = _required(properties, ACCESS_KEY_ID), _required(properties, SECRET_KEY)
    for declared in (ACCESS_KEY_ID, SECRET_KEY, SESSION_TOKEN):
        _check_header_text(properties, declared)
    session.set_credentials(*keys, properties.value(SESSION_TOKEN))


def _env_var(session: AioSession, properties: Properties, region: str) -> None:
    session.register_component("credential_provider", aio.AioCredentialResolver([aio.AioEnvProvider()]))


def _profile(session: AioSession, properties: Properties, region: str) -> None:
    _required(properties, PROFILE_NAME)  # the SDK's own chain begins with the session's profile


def _assume_role(session: AioSession, properties: Properties, region: str) -> None:
    """The role is assumed with basic keys when set, else with the profile, else with the SDK's chain."""
    source = profile_session(properties)
    if properties.is_set(ACCESS_KEY_ID):
        _basic(source, properties, region)
    _use_role(session, _SourceCredentials(source), _required(properties, ROLE_ARN), properties, region)


def _web_identity(session: AioSession, properties: Properties, region: str) -> None:
    if not properties.is_set(WEB_IDENTITY_FILE) and not properties.is_set(ROLE_ARN):
        return  # the SDK's chain reads AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN
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


@functools.cache
def _loader(data_path: str | None) -> Any:
    """The SDK's models and endpoint rules, loaded once for all clients of the process. It saves each further client 60 to 250 ms of CPU."""
    return create_loader(data_path)


@functools.cache
def _event_handlers() -> Any:
    """The SDK's own event handlers, registered once for all sessions of the process. It saves each further session 20 ms of CPU."""
    handlers = AioHierarchicalEmitter()
    AioSession(event_hooks=handlers)
    return handlers


class _Session(AioSession):  # type: ignore[misc] # the SDK is untyped
    """A session whose clients, those of the SDK's credential chain too, read bounded responses. Its errors about credentials are the SDK's.

    The SDK does not catch those of a malformed `credential_process`.
    """

    def __init__(self, profile: str | None = None) -> None:
        super().__init__(profile=profile, event_hooks=copy.copy(_event_handlers()), include_builtin_handlers=False)
        self.set_default_client_config(AioConfig(http_session_cls=BoundedHttpSession))

    def _create_credential_resolver(self) -> Any:
        resolver = super()._create_credential_resolver()
        bound_credential_processes(resolver)
        return resolver

    def create_client(self, *arguments: Any, **settings: Any) -> Any:
        """A client, as a context manager."""
        self.register_component("data_loader", _loader(self.get_config_variable("data_path")))
        return super().create_client(*arguments, **settings)

    async def get_credentials(self) -> Any:
        with sdk_errors():
            credentials = await super().get_credentials()
        if credentials is None:
            return None
        if not isinstance(credentials, RefreshableCredentials):  # those are checked at each renewal
            self._check(credentials)
        return CheckedCredentials(credentials)

    def _check(self, credentials: Any) -> None:
        try:
            check_keys(credentials)
        except CredentialRetrievalError:
            forget_credentials(self)
            raise


class _SourceCredentials:
    """The credentials with which a role is assumed: those of a session."""

    def __init__(self, session: AioSession) -> None:
        self._session = session

    async def get_frozen_credentials(self) -> Any:
        credentials = await self._session.get_credentials()
        if credentials is None:
            raise ConfigurationError(CREDENTIALS_PROVIDER.key, "ASSUME_ROLE", "credentials that may assume the role")
        return await credentials.get_frozen_credentials()


class _FixedProvider:
    """The session component `credential_provider`, which always returns the same credentials."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> Any:
        return self._credentials


def _use_role(session: AioSession, source: _SourceCredentials, role: str, properties: Properties, region: str) -> None:
    fetcher = aio.AioAssumeRoleCredentialFetcher(
        _sts_clients(properties, region), source, role, extra_args=_role_arguments(properties)
    )
    _use_refreshable(session, fetcher, "assume-role")


def _use_refreshable(session: AioSession, fetcher: Any, method: str) -> None:
    credentials = aio.AioDeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method=method)
    session.register_component("credential_provider", _FixedProvider(credentials))


def _sts_clients(properties: Properties, region: str) -> Any:
    endpoint = properties.value(ROLE_STS_ENDPOINT)
    return functools.partial(_Session().create_client, region_name=region, endpoint_url=endpoint)


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


def _check_header_text(properties: Properties, declared: Property[str | None]) -> None:
    """Raises: ConfigurationError for a character that cannot stand in a header, such as the end of a line."""
    value = properties.value(declared)
    if value is not None and not is_header_text(value):
        raise ConfigurationError(declared.key, MASK, "printable ASCII, without control characters")


def _required(properties: Properties, declared: Property[str | None]) -> str:
    value = properties.value(declared)
    if value is None:
        needed_by = CREDENTIALS_PROVIDER if properties.is_set(CREDENTIALS_PROVIDER) else None
        other = SECRET_KEY if declared is ACCESS_KEY_ID else ACCESS_KEY_ID
        reason = f"needed by {needed_by.key}={provider_name(properties)}" if needed_by else f"needed beside {other.key}"
        raise ConfigurationError(declared.key, None, declared.valid, reason=reason)
    return value


async def credentials_of(session: Any) -> Any:
    """Those of a session that are valid now, for another client than the SDK's: `access_key`, `secret_key`, `token`.

    Raises: KinesisError, ConfigurationError without credentials.
    """
    with translate_errors("GetCredentials"):
        if (found := await session.get_credentials()) is None:
            raise NoCredentialsError
        return await found.get_frozen_credentials()
