"""The server for HTTP/2 and HTTP/1.1 on one port, based on hypercorn (extra local). Without TLS clients begin with HTTP/2 at once."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

from aiohttp import hdrs
from multidict import CIMultiDict

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError

from .api_requests import MAX_BODY_BYTES, ApiRequests
from .certificate import Certificate
from .request_checks import Request, Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_STREAMS = 1_000
"""Requests that one connection may have open at a time. The service's number is not documented."""
FOREVER_SECONDS = 1e6
CLOSE_SECONDS = 0.05
"""When the server closes, open subscriptions are cancelled after this time (seconds)."""


class Http2Server:
    """Owns a listener for HTTP/2 and HTTP/1.1, with TLS if there is a certificate.

    Raises: ConfigurationError without the extra local.
    """

    def __init__(self, requests: ApiRequests, certificate: Certificate | None = None) -> None:
        try:
            import hypercorn  # noqa: F401
        except ImportError as error:
            valid = f"False, or True with the extra local: {install_command('local')}"
            raise ConfigurationError("http2", True, valid) from error
        self._requests = requests
        self._certificate = certificate
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises: OSError or OverflowError if that is not possible."""
        from hypercorn.asyncio import serve
        from hypercorn.config import Config

        ignore_goaway_without_error()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
        bound: int = listening.getsockname()[1]
        config = Config()
        config.bind = [f"fd://{listening.detach()}"]
        config.h2_max_concurrent_streams = MAX_STREAMS
        config.keep_alive_timeout = FOREVER_SECONDS
        config.keep_alive_max_requests = sys.maxsize
        config.graceful_timeout = CLOSE_SECONDS
        config.include_server_header = config.include_date_header = False
        config.accesslog = config.errorlog = None
        if self._certificate is not None:
            config.certfile, config.keyfile = str(self._certificate.file), str(self._certificate.key_file)
        self._serving = asyncio.create_task(serve(self._application, config, shutdown_trigger=self._stop.wait))  # type: ignore[arg-type]
        return bound

    async def close(self) -> None:
        """Stop listening and end every response."""
        self._stop.set()
        if self._serving is not None:
            await self._serving

    async def _application(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one ASGI request, until the client goes away."""
        if scope["type"] != "http":
            return
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        body = await _read_body(receive)
        if body is None:
            await _respond(Response(413, {hdrs.CONTENT_LENGTH: "0"}, b""), send)
            return
        gone = asyncio.ensure_future(receive())
        answering = asyncio.ensure_future(
            self._answer(Request(scope["method"], headers, body, scope["query_string"].decode("latin-1")), send)
        )
        try:
            await asyncio.wait([gone, answering], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await answering
        finally:
            gone.cancel()
            answering.cancel()
            await asyncio.gather(gone, answering, return_exceptions=True)

    async def _answer(self, request: Request, send: Send) -> None:
        try:
            response = await self._requests.answer(request, lambda headers: _AsgiResponseStream(headers, send))
        except ConnectionAbortedError:  # only this stream fails, because the connection has other streams
            response = Response(500, {hdrs.CONTENT_LENGTH: "0"}, b"")
        if response is not None:
            await _respond(response, send)


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if it is too large."""
    parts, size, more = [], 0, True
    while more and size <= MAX_BODY_BYTES:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts) if size <= MAX_BODY_BYTES else None


async def _respond(response: Response, send: Send) -> None:
    await _start(response.status, response.headers, send)
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


async def _start(status: int, headers: dict[str, str], send: Send) -> None:
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


class _AsgiResponseStream:
    """A response that stays open. A fault that would break the connection ends only this stream, since there may be others."""

    def __init__(self, headers: dict[str, str], send: Send) -> None:
        self._headers = headers
        self._send = send

    async def start(self) -> None:
        await _start(200, self._headers, self._send)

    async def write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        """Do nothing: the writer raises ConnectionAbortedError next, which ends the stream."""


NO_ERROR = 0


@cache
def ignore_goaway_without_error() -> None:
    """Let hypercorn's connections of this process ignore a GOAWAY that reports no error.

    The AWS SDK for JavaScript sends it with each subscription, while responses are in progress. h2 treats the first one as the end of the
    connection, and hypercorn closes it. But in HTTP/2 open streams continue (RFC 9113, 6.8), and the client closes the connection
    afterwards.
    """
    from hypercorn import protocol
    from hypercorn.protocol.h2 import H2Protocol
    from hyperframe.frame import GoAwayFrame

    class Connection(H2Protocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            ignore_in(self.connection)

    def ignore_in(connection: Any) -> None:
        receivers = connection._frame_dispatch_table
        end = receivers[GoAwayFrame]
        receivers[GoAwayFrame] = lambda frame: ([], []) if frame.error_code == NO_ERROR else end(frame)

    protocol.H2Protocol = Connection  # type: ignore[attr-defined]
