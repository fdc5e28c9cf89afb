"""SdkSession: the session of the AWS SDK that all clients use, with their HTTP settings, and with credentials that are checked."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import math
import os
import signal
import ssl
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioProcessProvider
from aiobotocore.hooks import AioHierarchicalEmitter
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from aiobotocore.session import AioSession
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    ConfigParseError,
    ConnectionClosedError,
    CredentialRetrievalError,
    ProfileNotFound,
    ReadTimeoutError,
)
from botocore.loaders import create_loader

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import PROFILE_NAME, PROFILE_PATH

from ..codec import RESPONSE_DECODERS, decode_error
from ..error_mapping import MalformedResponseError, check_response_size
from ..ports import is_header_text


def profile_session(properties: Properties) -> SdkSession:
    """Make an SDK session with the profile that the properties, or else the environment, name.

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


class SdkSession(AioSession):  # type: ignore[misc] # the SDK is untyped
    """A session whose clients read responses of limited size only. That includes the clients with which the SDK finds credentials.

    Every error about credentials is one of the SDK's error classes, even if a `credential_process` is malformed, for which the SDK itself
    raises other errors.
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

    def renew_first(self, source: SdkSession) -> None:
        """Make renewals begin with the credentials of `source`, because these assume the role of this session."""
        self._source = source

    async def get_credentials(self) -> Any:
        """Return the SDK's credentials after a check of the keys. If they are renewed, they are checked again.

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
        """Ask the provider for other keys, because the service refuses a token that is valid by its date. Return whether it has other
        keys.

        - `began`: when the refused call began (`time.monotonic`). If the keys were renewed after that, they are not renewed again.

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


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Return the SDK's loader of models and endpoint rules. All clients of the process share it, which saves 60 to 250 ms of CPU for
    each.
    """
    return create_loader(data_path)


@functools.cache
def _event_handlers() -> Any:
    """Return the SDK's own event handlers. All sessions of the process share them, which saves 20 ms of CPU for each."""
    handlers = AioHierarchicalEmitter()
    AioSession(event_hooks=handlers)
    return handlers


# --- checked credentials ------------------------------------------------------------------------------------------------------------

RENEWAL_SECONDS = 5.0
"""The shortest time between two renewals (seconds)."""
_PROVIDERS = "credential_process or files"


class CheckedCredentials:
    """The SDK's credentials, with a check of renewed keys before a request is signed with them."""

    def __init__(self, credentials: Any) -> None:
        self.sdk_credentials = credentials
        self._asked: tuple[float, Any] | None = None

    def use(self, credentials: Any) -> None:
        """Use these credentials of the SDK from now on. Clients that were made before keep this object, and so get them too."""
        if credentials is not self.sdk_credentials:
            self.sdk_credentials, self._asked = credentials, None

    def forget(self) -> Any:
        """Make the next signature ask the SDK's credentials again. Return the access key and token that were used last, or None."""
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
        """Return the account id, which the SDK's endpoint rules need. This may also renew the credentials."""
        with sdk_errors():
            account = self.sdk_credentials.get_account_id()
            return await account if inspect.isawaitable(account) else account


def check_keys(credentials: Any) -> None:
    """Check that a request can be signed with these keys. Raises: CredentialRetrievalError if not."""
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
    """Raise errors that the SDK does not turn into its own as CredentialRetrievalError. This library's errors pass unchanged."""
    try:
        yield
    # A `credential_process` or a server has sent something that is not as documented. RuntimeError means that a response is nested too
    # deeply, or that the credentials have expired already.
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        if isinstance(error, RecordPublisherError):
            raise
        raise CredentialRetrievalError(provider=_PROVIDERS, error_msg=repr(error)) from error


# All uses of private parts of the AWS SDK: of aiobotocore, botocore and their aiohttp. A test names each of them, on the newest SDK.
#
# The classes override methods of the SDK. If a version of the SDK keeps a part in another place, a function here returns None, and the SDK
# makes the call itself.

PROCESS_SECONDS = 60.0
"""The time limit of one `credential_process` (seconds), as in the AWS SDK for Go. The Python SDK would wait for ever."""


def http_session_of(client: Any) -> Any | None:
    """Return the HTTP session with which a client of the SDK sends."""
    return getattr(getattr(client, "_endpoint", None), "http_session", None)


def tls_context_for(http_session: Any, url: str) -> ssl.SSLContext | None:
    """Return the TLS context with which the SDK's HTTP session checks the certificate of `url`.

    Return None if the session uses a proxy, or has not connected yet.
    """
    try:
        is_direct = http_session._proxy_config.proxy_url_for(url) is None
        tls = http_session._sessions[None].connector._ssl
    except (AttributeError, KeyError, TypeError):
        return None
    return tls if is_direct and isinstance(tls, ssl.SSLContext) else None


def forget_credentials(session: Any) -> None:
    """Make an SDK session load its credentials again at the next call."""
    session._credentials = None


def expire_credentials(credentials: Any) -> None:
    """Make credentials that the SDK renews count as expired, so that their next use renews them, and does not take an assumed role from
    the SDK's cache.
    """
    credentials._expiry_time = credentials._time_fetcher()
    cache = getattr(getattr(credentials._refresh_using, "__self__", None), "_cache", None)
    if isinstance(cache, dict):
        cache.clear()


def bound_credential_processes(resolver: Any) -> None:
    """Make the SDK's chain of providers start each `credential_process` as `CredentialProcess`, even the one of a role's source profile."""
    for provider in getattr(resolver, "providers", ()):
        if isinstance(provider, AioProcessProvider):
            provider._popen = CredentialProcess.start
        builder: Any = getattr(provider, "_profile_provider_builder", None)
        if create := getattr(builder, "_create_process_provider", None):
            builder._create_process_provider = lambda profile_name, create=create: _bound(create(profile_name))


def _bound(provider: Any) -> Any:
    provider._popen = CredentialProcess.start
    return provider


class CredentialProcess:
    """A `credential_process` in a process group of its own, so that the processes that it starts are killed with it.

    The group is killed if the wait for it fails or is cancelled. Without that, these processes would continue to run.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *command: str, **pipes: Any) -> CredentialProcess:
        """Start a command. If this call is cancelled, it waits until the command has started, and then kills it."""
        starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, **pipes, start_new_session=True))
        try:
            return cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await cls(starting.result())._end()
            raise

    @property
    def returncode(self) -> int | None:
        """The exit code of the process."""
        return self._process.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Return what the process has printed, when it has ended. Raises: CredentialRetrievalError if it takes too long."""
        try:
            async with asyncio.timeout(PROCESS_SECONDS):
                return await self._process.communicate()
        except (Exception, asyncio.CancelledError) as error:
            await self._end()
            if isinstance(error, TimeoutError):
                reason = f"the credential_process has not ended within {PROCESS_SECONDS:g} s: run it by hand"
                raise CredentialRetrievalError(provider="credential_process", error_msg=reason) from error
            raise

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.communicate()  # This waits until its pipes are closed.


class BoundedHttpSession(AIOHTTPSession):  # type: ignore[misc] # the SDK is untyped
    """Reads the bodies of responses with a limit. The SDK itself would read a body without an end until the deadline."""

    async def send(self, request: Any) -> Any:
        """Send a request of the SDK. Raises: the errors of the SDK's client; MalformedResponseError if a body is too long."""
        # The SDK must not read the body, because `read_body` does so with a limit.
        is_stream, request.stream_output = request.stream_output, True
        response = await super().send(request)
        bounded = _BoundedResponse(response.url, response.status_code, response.headers, response.raw)
        if not is_stream:
            await bounded.content
        return bounded


class _BoundedResponse(AioAWSResponse):  # type: ignore[misc] # the SDK is untyped
    _content: bytes | None

    async def _content_prop(self) -> bytes:
        if self._content is None:
            try:
                check_response_size(self.raw.content_length or 0)
                self._content = await read_body(self.raw.content.iter_any(), self.url)
            except BaseException:
                self.raw.close()
                raise
        return self._content


async def read_body(chunks: AsyncIterable[bytes], url: str) -> bytes:
    """Return a whole body.

    Raises: MalformedResponseError if it is too long; the SDK's errors if the network fails, so that the SDK tries again.
    """
    read: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            check_response_size(size)
            read.append(chunk)
    except TimeoutError as error:
        raise ReadTimeoutError(endpoint_url=url, error=error) from error
    except aiohttp.ClientError as error:
        raise ConnectionClosedError(endpoint_url=url, error=error) from error
    return b"".join(read)


class RecordParser(AioJSONParser):  # type: ignore[misc] # the SDK is untyped
    """The SDK's JSON parser, but with this package's decoders for the most frequent responses.

    The SDK walks shapes and parses a timestamp for every record: 14 us a record, against 0.6 to 1.0 us here. Error responses, headers and
    all other operations are left to the SDK, as are signing and credentials. There is one difference: a malformed or truncated JSON body is
    an error here, while the SDK takes it for an empty response.
    """

    async def _do_parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        if shape is None or shape.name not in RESPONSE_DECODERS:
            parsed: dict[str, Any] = await super()._do_parse(response, shape)
            return parsed
        decoded = RESPONSE_DECODERS[shape.name](response["body"])
        self._inject_response_metadata(decoded, response["headers"])
        return decoded

    def _handle_json_body(self, raw_body: bytes, shape: Any) -> dict[str, Any]:
        body = msgspec.json.decode(raw_body, type=dict) if raw_body else {}
        try:
            parsed: dict[str, Any] = self._parse_shape(shape, body)
        except Exception as error:
            # Any error may be raised here, because the SDK does not check the types of values.
            raise MalformedResponseError(f"not a {shape.name}: {error}") from error
        return parsed

    def _parse_body_as_json(self, body_contents: bytes) -> dict[str, str]:
        """Parse the body of an error response. A proxy's body may be any JSON, while the SDK expects an object of strings."""
        return decode_error(body_contents)


class RecordParserFactory(AioResponseParserFactory):  # type: ignore[misc] # the SDK is untyped
    """The session's component `response_parser_factory`. Parsers have no state, so one of each is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._parser = RecordParser()

    def create_parser(self, protocol_name: str) -> Any:
        """Return the parser of a protocol: `RecordParser` for JSON, the SDK's own for other protocols (STS)."""
        return self._parser if protocol_name == "json" else super().create_parser(protocol_name)
