"""Serves HTTP/1.1 with aiohttp and HTTP/2 with Hypercorn, with or without TLS."""

from __future__ import annotations

import asyncio
import datetime
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError

from .http_requests import MAX_BODY_BYTES, ApiRequests, Request, Response

if TYPE_CHECKING:
    from cryptography import x509


log = logging.getLogger("recordpublisher.local.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_STREAMS = 1_000
"""Requests that one connection may have open at a time. The service's number is not documented."""
FOREVER_SECONDS = 1e6
CLOSE_SECONDS = 0.05
"""When the server closes, open subscriptions are cancelled after this time (seconds)."""


NO_ERROR = 0

VALID_DAYS = 365


class AiohttpServer:
    """Owns a listener for HTTP/1.1, with TLS if there is a certificate."""

    def __init__(self, requests: ApiRequests, certificate: Certificate | None = None) -> None:
        self._requests = requests
        self._certificate = certificate
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_without_made_up_type)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            logger=log,
            shutdown_timeout=0.05,  # then open subscriptions are cancelled; 0 would wait for ever
        )

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises: OSError or OverflowError if that is not possible."""
        await self._runner.setup()
        context = None if self._certificate is None else self._certificate.server_context()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        listening: int = self._runner.addresses[0][1]
        return listening

    async def close(self) -> None:
        """Stop listening and end every response."""
        await self._runner.cleanup()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        streams: list[_HttpResponseStream] = []

        def open_stream(headers: dict[str, str]) -> _HttpResponseStream:
            streams.append(_HttpResponseStream(http, headers))
            return streams[0]

        try:
            body = await http.read()
        except web.RequestPayloadError:  # aiohttp logs it when it has the response
            return web.Response(status=400, text="The body of the request cannot be read.")
        request = Request(http.method, http.headers, body, http.rel_url.raw_query_string)
        try:
            response = await self._requests.answer(request, open_stream)
        except ConnectionAbortedError:
            return _drop(http)
        if response is None:
            return streams[0].response
        return web.Response(status=response.status, headers=response.headers, body=response.body)


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


class Certificate:
    """Owns a folder with the certificate and its key, which only this user can read.

    The certificate is valid for a year, for `localhost` and the host. Raises: ConfigurationError without the extra local.
    """

    def __init__(self, host: str) -> None:
        try:
            import cryptography  # noqa: F401
        except ImportError as error:
            valid = f"False, or True with the extra local: {install_command('local')}"
            raise ConfigurationError("tls", True, valid) from error
        self._folder = TemporaryDirectory(prefix="recordpublisher-tls-")
        self.file = Path(self._folder.name) / "certificate.pem"
        self.key_file = Path(self._folder.name) / "key.pem"
        certificate, key = _self_signed(host)
        self.file.write_bytes(certificate)
        self.key_file.write_bytes(key)

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context that a server listens with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.file, self.key_file)
        return context

    def close(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()


def _without_traceback(entry: logging.LogRecord) -> bool:
    """Log a malformed request, such as one with TLS, as one line. aiohttp would log a traceback."""
    error = entry.exc_info[1] if entry.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        entry.msg, entry.args, entry.exc_info = "malformed request: %.200s", (" ".join(str(error).split()),), None
    return True


log.addFilter(_without_traceback)


class _HttpResponseStream:
    """An HTTP response that stays open."""

    def __init__(self, request: web.Request, headers: dict[str, str]) -> None:
        self._request = request
        self.response = web.StreamResponse(headers=headers)

    async def start(self) -> None:
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        await self.response.write(data)

    async def end(self) -> None:
        await self.response.write_eof()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


async def _without_made_up_type(_: web.Request, response: web.StreamResponse) -> None:
    """Remove the content type that aiohttp adds to a response without one."""
    if response.headers.get(hdrs.CONTENT_TYPE) == "application/octet-stream":
        del response.headers[hdrs.CONTENT_TYPE]


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


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


def _self_signed(host: str) -> tuple[bytes, bytes]:
    """Return a certificate for this host that is its own authority, and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "recordpublisher local endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate.public_bytes(encoding), key.private_bytes(encoding, form, serialization.NoEncryption())


def _names(host: str) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for each in dict.fromkeys(["localhost", "127.0.0.1", "::1", host]):
        try:
            names.append(x509.IPAddress(ip_address(each)))
        except ValueError:
            names.append(x509.DNSName(each))
    return names
