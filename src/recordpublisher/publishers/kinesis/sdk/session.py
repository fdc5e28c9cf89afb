"""SdkSession: the session of the AWS SDK that all clients use. It sets their HTTP settings, and checks credentials."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.hooks import AioHierarchicalEmitter
from aiobotocore.session import AioSession
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    ConfigParseError,
    CredentialRetrievalError,
    ProfileNotFound,
)
from botocore.loaders import create_loader

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import PROFILE_NAME, PROFILE_PATH

from ..ports import is_header_text
from .private_parts import BoundedHttpSession, bound_credential_processes, expire_credentials, forget_credentials


class SdkSession(AioSession):  # type: ignore[misc] # the SDK is untyped
    """A session whose clients read responses up to a limit. That includes the clients with which the SDK itself finds credentials.

    Every error about credentials is one of the SDK's error classes, even for malformed output of a `credential_process`.
    """

    def __init__(self, profile: str | None = None) -> None:
        self._source: SdkSession | None = None
        self._checked: CheckedCredentials | None = None
        self._renewed_at = -math.inf
        super().__init__(profile=profile, event_hooks=copy.copy(_event_handlers()), include_builtin_handlers=False)
        self.set_default_client_config(AioConfig(http_session_cls=BoundedHttpSession))

    def _create_credential_resolver(self) -> Any:
        resolver = super()._create_credential_resolver()
        bound_credential_processes(resolver)
        return resolver

    def create_client(self, *arguments: Any, **settings: Any) -> Any:
        """Return a client, as an async context manager."""
        self.register_component("data_loader", _loader(self.get_config_variable("data_path")))
        return super().create_client(*arguments, **settings)

    def renew_source_first(self, source: SdkSession) -> None:
        """Note that the credentials of `source` assume the role of this session. A renewal of this session then renews `source` first."""
        self._source = source

    async def get_credentials(self) -> Any:
        """Return credentials with checked keys, or None if there are none. Renewed keys are checked again.

        Raises: the SDK's errors if the credentials cannot be found or used.
        """
        with sdk_errors():
            credentials = await super().get_credentials()
        if credentials is None:
            return None
        if not isinstance(credentials, RefreshableCredentials):
            try:
                check_keys(credentials)
            except CredentialRetrievalError:
                # The SDK must forget the keys, or else its next call would return them without this check.
                forget_credentials(self)
                raise
        if self._checked is None:
            self._checked = CheckedCredentials(credentials)
        self._checked.use(credentials)
        return self._checked

    async def renew_credentials(self, began: float) -> bool:
        """Ask the provider for other keys, because the service has refused a token as expired. Return whether the keys have changed.

        `began`: when the refused call began (`time.monotonic`). If the keys were renewed after that, they are not renewed again.

        Raises: the SDK's errors if the provider fails.
        """
        if self._renewed_at >= began:
            return True
        # Keys that are set as properties cannot be renewed.
        if (checked := self._checked) is None or checked.method == "explicit":
            return False
        # 1. Renew the credentials that assume the role.
        if self._source is not None:
            await self._source.renew_credentials(began)
        # 2. Forget the keys, here and in the SDK.
        used = checked.forget()
        if isinstance(checked.sdk_credentials, RefreshableCredentials):
            expire_credentials(checked.sdk_credentials)
        else:
            forget_credentials(self)
        # 3. Ask again.
        found = await self.get_credentials()
        renewed = None if found is None else await found.get_frozen_credentials()
        self._renewed_at = time.monotonic()
        return renewed is not None and (renewed.access_key, renewed.token) != used


def profile_session(properties: Properties) -> SdkSession:
    """Make an SDK session with the profile that the properties name, or else with the one that the environment names.

    Raises: ConfigurationError if the profile does not exist, or a file cannot be read.
    """
    session = SdkSession(profile=properties.value(PROFILE_NAME))
    if (path := properties.value(PROFILE_PATH)) is not None:
        session.set_config_variable("credentials_file", path)
    # Checked here, because the SDK would report a missing profile only at its first look-up.
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
    """Return the SDK's loader of models and endpoint rules. All clients of the process share it: a new one costs 60 to 250 ms of CPU."""
    return create_loader(data_path)


@functools.cache
def _event_handlers() -> Any:
    """Return the SDK's own event handlers. All sessions of the process share them: new ones cost 20 ms of CPU."""
    handlers = AioHierarchicalEmitter()
    AioSession(event_hooks=handlers)
    return handlers


# --- checked credentials ------------------------------------------------------------------------------------------------------------

RENEWAL_SECONDS = 5.0
"""The shortest time between two renewals (seconds)."""
_PROVIDERS = "credential_process or files"


class CheckedCredentials:
    """The SDK's credentials. When the SDK has renewed the keys, they are checked before a request is signed with them."""

    def __init__(self, credentials: Any) -> None:
        self.sdk_credentials = credentials
        self._asked: tuple[float, Any] | None = None

    def use(self, credentials: Any) -> None:
        """Use these credentials of the SDK from now on. Clients that were made earlier hold this object, so they use them as well."""
        if credentials is not self.sdk_credentials:
            self.sdk_credentials, self._asked = credentials, None

    def forget(self) -> Any:
        """Make the next signature ask the SDK's credentials again. Return the access key and token of the last signature, or None."""
        asked, self._asked = self._asked, None
        return None if asked is None else (asked[1].access_key, asked[1].token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sdk_credentials, name)

    async def get_frozen_credentials(self) -> Any:
        """Return the keys to sign with.

        Raises: CredentialRetrievalError if the keys cannot be used; the SDK's errors.
        """
        # The SDK would renew keys that expire within 15 minutes at each call. With a `credential_process` that takes a minute, each request
        # would run it. So renewals have a shortest interval here.
        now = asyncio.get_running_loop().time()
        expires_within = getattr(self.sdk_credentials, "refresh_needed", None)
        is_valid = expires_within is None or not expires_within(RENEWAL_SECONDS)
        if self._asked is not None and now < self._asked[0] + RENEWAL_SECONDS and is_valid:
            return self._asked[1]
        with sdk_errors():
            frozen = await self.sdk_credentials.get_frozen_credentials()
        check_keys(frozen)
        self._asked = now, frozen
        return frozen

    async def get_account_id(self) -> Any:
        """Return the AWS account id, for the SDK's endpoint rules. This may also renew the credentials."""
        with sdk_errors():
            account = self.sdk_credentials.get_account_id()
            return await account if inspect.isawaitable(account) else account


def check_keys(credentials: Any) -> None:
    """Check that a request can be signed with these keys. Raises: CredentialRetrievalError if one of them is not printable ASCII."""
    given = {
        "access key": credentials.access_key,
        "secret key": credentials.secret_key,
        "token": credentials.token or "",
    }
    for name, value in given.items():
        if not isinstance(value, str) or not is_header_text(value):
            raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=f"the {name} is not printable ASCII text")


@contextmanager
def sdk_errors() -> Iterator[None]:
    """Raise an unexpected error of the `with` block, such as a ValueError, as CredentialRetrievalError.

    Errors of the SDK and of this library are raised as they are.
    """
    try:
        yield
    # A `credential_process` or a server has sent something that is not as documented. RuntimeError means that a response is nested too
    # deeply, or that the credentials have expired already.
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        if isinstance(error, RecordPublisherError):
            raise
        raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=repr(error)) from error
