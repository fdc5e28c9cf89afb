"""SdkSession: every session of the AWS SDK, with the HTTP settings of all its clients."""

import copy
import functools
import math
import time
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.hooks import AioHierarchicalEmitter
from aiobotocore.session import AioSession
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ConfigParseError, CredentialRetrievalError, ProfileNotFound
from botocore.loaders import create_loader

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.reading import PROFILE_NAME, PROFILE_PATH
from recordpublisher.publishers.properties.properties import Properties

from .checked_credentials import CheckedCredentials, check_keys, sdk_errors
from .internals import BoundedHttpSession, bound_credential_processes, expire_credentials, forget_credentials


class SdkSession(AioSession):  # type: ignore[misc] # the SDK is untyped
    """A session whose clients read bounded responses, including the clients of the SDK's credential chain.

    Every error about credentials is one of the SDK's error classes. The SDK itself does not catch the errors of a
    malformed `credential_process`.
    """

    source: "SdkSession | None" = None
    """The session whose credentials assume this session's role."""

    def __init__(self, profile: str | None = None) -> None:
        self._checked: CheckedCredentials | None = None
        self._renewed_at = -math.inf
        super().__init__(profile=profile, event_hooks=copy.copy(_event_handlers()), include_builtin_handlers=False)
        self.set_default_client_config(AioConfig(http_session_cls=BoundedHttpSession))

    def _create_credential_resolver(self) -> Any:
        resolver = super()._create_credential_resolver()
        bound_credential_processes(resolver)
        return resolver

    def create_client(self, *arguments: Any, **settings: Any) -> Any:
        """Return a client, as a context manager."""
        self.register_component("data_loader", _loader(self.get_config_variable("data_path")))
        return super().create_client(*arguments, **settings)

    async def get_credentials(self) -> Any:
        """Return the SDK's credentials, checked. Credentials that are renewed are checked at each renewal.

        Raises: the SDK's errors if the credentials cannot be found or used.
        """
        with sdk_errors():
            credentials = await super().get_credentials()
        if credentials is None:
            return None
        if not isinstance(credentials, RefreshableCredentials):  # refreshable ones are checked at each renewal
            self._check(credentials)
        if self._checked is None:
            self._checked = CheckedCredentials(credentials)
        self._checked.use(credentials)
        return self._checked

    async def renew_credentials(self, began: float) -> bool:
        """Ask the provider again, because the service refuses a token that is valid by its date. Return whether it has other keys.

        - `began`: when the refused call began (`time.monotonic`). A renewal since then is enough.

        Raises: the SDK's errors if the provider fails.
        """
        if self._renewed_at >= began:
            return True
        if (checked := self._checked) is None or checked.method == "explicit":  # keys of the properties stay the same
            return False
        if self.source is not None:
            await self.source.renew_credentials(began)
        used = checked.forget()
        if isinstance(checked.sdk_credentials, RefreshableCredentials):
            expire_credentials(checked.sdk_credentials)
        else:
            forget_credentials(self)
        found = await self.get_credentials()
        renewed = None if found is None else await found.get_frozen_credentials()
        self._renewed_at = time.monotonic()
        return renewed is not None and (renewed.access_key, renewed.token) != used

    def _check(self, credentials: Any) -> None:
        try:
            check_keys(credentials)
        except CredentialRetrievalError:
            forget_credentials(self)
            raise


def profile_session(properties: Properties) -> AioSession:
    """Make an SDK session with the profile that the properties, or else the environment, name.

    Without this check the SDK would report a missing profile only later, at its first look-up.

    Raises: ConfigurationError if the profile does not exist, or a file cannot be read.
    """
    session = SdkSession(profile=properties.value(PROFILE_NAME))
    if (path := properties.value(PROFILE_PATH)) is not None:
        session.set_config_variable("credentials_file", path)
    try:
        session.get_scoped_config()
    except ProfileNotFound as error:
        key = PROFILE_NAME.key if properties.is_set(PROFILE_NAME) else "AWS_PROFILE"
        raise ConfigurationError(key, session.profile, "a profile of the AWS configuration files") from error
    except ConfigParseError as error:
        raise ConfigurationError(
            "AWS_CONFIG_FILE", valid="files as `aws configure` writes them", reason=str(error)
        ) from error
    return session


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Return the SDK's loader of models and endpoint rules. They are loaded once for all clients of the process.

    This saves each further client 60 to 250 ms of CPU.
    """
    return create_loader(data_path)


@functools.cache
def _event_handlers() -> Any:
    """Return the SDK's own event handlers, registered once for all sessions of the process.

    This saves each further session 20 ms of CPU.
    """
    handlers = AioHierarchicalEmitter()
    AioSession(event_hooks=handlers)
    return handlers
