"""CheckedCredentials wraps the SDK's credentials so that their errors, even at a renewal, are the SDK's own."""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import CredentialRetrievalError

from recordpublisher.publishers.errors import RecordPublisherError

from ..plain_profile import is_header_text

RENEWAL_SECONDS = 5.0
"""The least time between two renewals."""
_PROVIDERS = "credential_process or files"


class CheckedCredentials:
    """Delegates to the SDK's credentials. Renewed keys are checked before a request is signed with them."""

    def __init__(self, credentials: Any) -> None:
        self.sdk_credentials = credentials
        self._asked: tuple[float, Any] | None = None

    def use(self, credentials: Any) -> None:
        """Delegate to these credentials of the SDK from now on. Clients that were made before keep this object."""
        if credentials is not self.sdk_credentials:
            self.sdk_credentials, self._asked = credentials, None

    def forget(self) -> Any:
        """Ask the SDK's credentials again at the next signature. Return the access key and token that were used last, or None."""
        asked, self._asked = self._asked, None
        return None if asked is None else (asked[1].access_key, asked[1].token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sdk_credentials, name)

    async def get_frozen_credentials(self) -> Any:
        """Return the keys to sign with.

        The SDK renews keys that expire within 15 minutes at each call: a `credential_process` that takes a minute would
        run for each request.

        Raises: CredentialRetrievalError if the keys cannot be used; the SDK's errors.
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
        """Return the account, for the SDK's endpoint rules. This may also renew the credentials."""
        with sdk_errors():
            account = self.sdk_credentials.get_account_id()
            return await account if inspect.isawaitable(account) else account


@contextmanager
def sdk_errors() -> Iterator[None]:
    """Raise errors that the SDK does not catch as CredentialRetrievalError. Our own errors pass unchanged.

    Such an error means that a `credential_process` or a server sent something that is not as documented. RuntimeError
    means that a response is nested too deeply, or that the credentials have expired already.
    """
    try:
        yield
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        if isinstance(error, RecordPublisherError):
            raise
        raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=repr(error)) from error


def check_keys(credentials: Any) -> None:
    """Check the keys. Raises: CredentialRetrievalError if no request can be signed with them."""
    given = {
        "access key": credentials.access_key,
        "secret key": credentials.secret_key,
        "token": credentials.token or "",
    }
    for name, value in given.items():
        if not isinstance(value, str) or not is_header_text(value):
            raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=f"the {name} is not printable ASCII text")
