"""All uses of private parts of the AWS SDK: of aiobotocore, botocore and their aiohttp.

A test checks that the newest SDK still has each of them. If another version has moved a part, a function here returns None, and the SDK
makes the call itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterable
from typing import Any

import aiohttp
import msgspec
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.credentials import AioProcessProvider
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from botocore.exceptions import (
    ConnectionClosedError,
    CredentialRetrievalError,
    ReadTimeoutError,
)

from recordpublisher.publishers.decoding_errors import UNDECODABLE

from ..codec import RESPONSE_DECODERS, decode_error
from ..error_mapping import MalformedResponseError, check_response_size, refuse_foreign

PROCESS_SECONDS = 60.0
"""The time limit of one `credential_process` (seconds), as in the AWS SDK for Go. The Python SDK would wait for ever."""


def http_session_of(client: Any) -> Any | None:
    """Return the HTTP session of an SDK client, or None if it is not found."""
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
    """Mark credentials that the SDK renews as expired, so that their next use renews them.

    The SDK's cache of assumed roles is emptied, because it would return the old credentials.
    """
    credentials._expiry_time = credentials._time_fetcher()
    cache = getattr(getattr(credentials._refresh_using, "__self__", None), "_cache", None)
    if isinstance(cache, dict):
        cache.clear()


def bound_credential_processes(resolver: Any) -> None:
    """Make the SDK's chain of providers start each `credential_process` as a `CredentialProcess`.

    That includes a `credential_process` of the source profile of a role.
    """
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
    """A `credential_process` in a process group of its own.

    If `communicate` fails or is cancelled, the whole group is killed, with all processes that the command has started.
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
        """Wait for the end of the process, and return its stdout and stderr. Raises: CredentialRetrievalError if it takes too long."""
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
    """Reads the bodies of responses up to a limit. The SDK itself would read an endless body until the deadline."""

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
    """Return a whole body. `url` is for messages.

    Raises: MalformedResponseError if the body is too long. If the network fails, one of the SDK's errors, so that the SDK tries again.
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

    The SDK takes 14 us for each record, because it walks shapes and parses a timestamp. These decoders take 0.6 to 1.0 us. The SDK still
    parses error responses, headers and all other responses.

    There is one difference: a malformed or truncated JSON body is an error here, but an empty response for the SDK.
    """

    async def _do_parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        if shape is None or shape.name not in RESPONSE_DECODERS:
            try:
                parsed: dict[str, Any] = await super()._do_parse(response, shape)
            except UNDECODABLE:
                refuse_foreign(response["headers"], response["body"].decode(errors="replace"))
                raise
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
            raise MalformedResponseError(f"the response is not a {shape.name}: {error}") from error
        return parsed

    def _parse_body_as_json(self, body_contents: bytes) -> dict[str, str]:
        """Parse the body of an error response. Any JSON is accepted, because a proxy may have sent it. The SDK accepts only an object of
        strings.
        """
        return decode_error(body_contents)


class RecordParserFactory(AioResponseParserFactory):  # type: ignore[misc] # the SDK is untyped
    """Returns the parsers of responses (the session's component `response_parser_factory`). It keeps one `RecordParser`, which has no
    state.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parser = RecordParser()

    def create_parser(self, protocol_name: str) -> Any:
        """Return the parser of a protocol: `RecordParser` for JSON, the SDK's own for other protocols (STS)."""
        return self._parser if protocol_name == "json" else super().create_parser(protocol_name)
