"""CheckedCredentials: credentials of the SDK whose errors, at a renewal too, are the SDK's own."""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import CredentialRetrievalError

from recordpublisher.publishers.errors import RecordPublisherError

from ..plain_profile import is_header_text

RENEWAL_SECONDS = 5.0
"""Between two renewals, at least."""
_PROVIDERS = "credential_process or files"


class CheckedCredentials:
    """Delegates to the SDK's credentials. What is renewed is checked before a request is signed with it."""

    def __init__(self, credentials: Any) -> None:
        self.sdk_credentials = credentials
        self._asked: tuple[float, Any] | None = None

    def use(self, credentials: Any) -> None:
        """Delegate to these credentials of the SDK from now on. The clients that were made keep this object."""
        if credentials is not self.sdk_credentials:
            self.sdk_credentials, self._asked = credentials, None

    def forget(self) -> Any:
        """Ask the SDK's credentials at the next signature. Return the access key that was used last and its token, or None."""
        asked, self._asked = self._asked, None
        return None if asked is None else (asked[1].access_key, asked[1].token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sdk_credentials, name)

    async def get_frozen_credentials(self) -> Any:
        """The keys to sign with. Raises: CredentialRetrievalError, and what the SDK raises.

        The SDK renews those that expire within 15 minutes at each call: a `credential_process` of a minute would run for each request.
        """
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
        """The account, for the SDK's endpoint rules. This may renew, too."""
        with sdk_errors():
            account = self.sdk_credentials.get_account_id()
            return await account if inspect.isawaitable(account) else account


@contextmanager
def sdk_errors() -> Iterator[None]:
    """Raise what the SDK does not catch as CredentialRetrievalError: `credential_process`, or a server, responded with something that is
    not as documented. RuntimeError: nested too deeply, or expired already. Our own errors stay as they are."""
    try:
        yield
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        if isinstance(error, RecordPublisherError):
            raise
        raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=repr(error)) from error


def check_keys(credentials: Any) -> None:
    """Raises: CredentialRetrievalError for keys that no request can be signed with."""
    given = {
        "access key": credentials.access_key,
        "secret key": credentials.secret_key,
        "token": credentials.token or "",
    }
    for name, value in given.items():
        if not isinstance(value, str) or not is_header_text(value):
            raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=f"the {name} is not printable ASCII text")
