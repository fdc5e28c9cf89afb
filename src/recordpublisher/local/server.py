"""The embedded endpoint as a server on loopback: `LocalKinesis` in asyncio, and `serve_in_thread` in synchronous code.

HTTP/1.1 is served with aiohttp and HTTP/2 with Hypercorn, with or without TLS.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, Unpack

import msgspec
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from ..install_commands import install_command
from ..publishers.clock import SystemClock
from ..publishers.errors import ConfigurationError
from .account import Account, Delays, Quotas
from .clock import Clock, ManualClock
from .errors import ApiError
from .faults import FaultRule, Faults
from .http_requests import MAX_BODY_BYTES, ApiRequests, Request, Response, is_loopback
from .requests import CreateStream
from .stream import CONSUMER_LIMIT, Stream

if TYPE_CHECKING:
    from cryptography import x509

    from .storage import AccountStorage

P = ParamSpec("P")
T = TypeVar("T")


class LocalKinesis:
    """The endpoint: a listening socket, and the account behind it. It runs from `start` to `close`, or as `async with`.

    - `streams`: the number of shards of each stream, by name.
    - `credentials`: the secret of each access key. Without it every signature is accepted; with it a request must be signed by one of the
      keys.
    - `quotas`: rate limits. By default there are none.
    - `clock`: the only source of the endpoint's time. Iterators, heartbeats, retention and the Date header follow it.
    - `consumer_limit`: number of consumers that a stream may have.
    - `faults`: rules by which calls and frames fail at random, as text or as FaultRule. `seed` makes the faults repeatable.
    - `http2`: whether to serve HTTP/2 as well. Needs the extra local.
    - `tls`: whether to serve HTTPS, with a certificate that is created here (`certificate_file`). Needs the extra local.
    - `data`: a folder in which streams, records, consumers and tags survive a restart. A stream that the folder has takes precedence over
      the one in `streams`.

    Raises: ConfigurationError in these cases:

    - `host` is not a loopback address, and `allow_remote` is not set.
    - A stream or a fault rule is not valid.
    - `http2` or `tls` is set, and the extra local is not installed.
    - The folder `data` cannot be used.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        streams: Mapping[str, int] | None = None,
        *,
        clock: Clock | None = None,
        quotas: Quotas | None = None,
        credentials: Mapping[str, str] | None = None,
        delays: Delays | None = None,
        region: str = "us-east-1",
        consumer_limit: int = CONSUMER_LIMIT,
        allow_remote: bool = False,
        faults: str | Sequence[FaultRule] = (),
        seed: int = 0,
        http2: bool = False,
        tls: bool = False,
        data: Path | str | None = None,
    ) -> None:
        # Other machines reach the endpoint only with `allow_remote` (C4).
        if not is_loopback(host) and not allow_remote:
            reason = "other machines could reach the endpoint. To allow that, set allow_remote (--allow-remote)"
            raise ConfigurationError("host", host, "a loopback address such as 127.0.0.1", reason=reason)
        self.host = host
        self.port = port
        self.region = region
        self._credentials = credentials
        self.clock = clock or SystemClock()
        self.account = Account(self.clock, region, delays or Delays(), quotas, consumer_limit)
        requests = ApiRequests(self.account, credentials, allow_remote)
        self._certificate = Certificate(host) if tls else None
        self._server = (Http2Server if http2 else AiohttpServer)(requests, self._certificate)
        self._storage = None if data is None else _open_storage(self.account, Path(data))
        try:
            for name, shard_count in (streams or {}).items():
                if self._storage is None or name not in self.account.streams():
                    self.create_stream(name, shard_count)
            self.account.faults.start_random(faults, seed)
        except BaseException:
            self._release_files()
            raise
        self.account.faults.on_plan(self.account.wake_all)
        if isinstance(self.clock, ManualClock):
            self.clock.on_advance(self.account.wake_all)

    @property
    def url(self) -> str:
        """The URL of the endpoint, to be used as `aws.endpoint`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._certificate is None else 'https'}://{host}:{self.port}"

    @property
    def certificate_file(self) -> Path | None:
        """The file that clients must trust, for example as AWS_CA_BUNDLE; None without TLS. `close` deletes it."""
        return None if self._certificate is None else self._certificate.file

    @property
    def faults(self) -> Faults:
        """The endpoint's faults. A test can plan further ones with it."""
        return self.account.faults

    def stream(self, name: str) -> Stream:
        """Return the stream of that name. A test can inspect it, or put records into it directly."""
        return self.account.find(name)

    def create_stream(self, name: str, shard_count: int = 1) -> Stream:
        """Add a stream. Raises: ConfigurationError if Kinesis does not allow the name or `shard_count`, or if the name is taken."""
        try:
            msgspec.convert({"StreamName": name, "ShardCount": shard_count}, CreateStream)
            stream = self.account.create_stream(name, shard_count)
        except (msgspec.ValidationError, ApiError) as error:
            raise ConfigurationError("stream", f"{name}:{shard_count}", "NAME:SHARDS", reason=str(error)) from error
        self.account.report_change()
        return stream

    def properties(self) -> dict[str, str]:
        """Return the properties with which a job connects to this endpoint."""
        key, secret = next(iter((self._credentials or {"local": "local"}).items()))
        return {
            "aws.region": self.region,
            "aws.endpoint": self.url,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": key,
            "aws.credentials.provider.basic.secretkey": secret,
        }

    async def start(self) -> Self:
        """Start to listen. Raises: ConfigurationError if the port is not available."""
        try:
            self.port = await self._server.start(self.host, self.port)
        except (OSError, OverflowError) as error:
            self._release_files()
            raise ConfigurationError("port", self.port, "a free port, or 0 for any", reason=str(error)) from error
        return self

    async def close(self) -> None:
        """Stop listening and end every subscription."""
        await self._server.close()
        self._release_files()

    def _release_files(self) -> None:
        """Close the data folder, so that another endpoint can use it, and delete the certificate. Later calls do nothing."""
        storage, self._storage = self._storage, None
        try:
            if storage is not None:
                storage.close()
        finally:
            if self._certificate is not None:
                self._certificate.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextmanager
def serve_in_thread(
    host: str = "127.0.0.1", port: int = 0, streams: Mapping[str, int] | None = None, **options: Unpack[ServerOptions]
) -> Iterator[LocalKinesisThread]:
    """Run an endpoint in a thread while the `with` block runs. The arguments are the settings of `LocalKinesis`."""
    endpoint = LocalKinesis(host, port, streams, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local-kinesis", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(endpoint.start(), loop).result(timeout=30)
        yield LocalKinesisThread(endpoint, loop)
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.close(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()


class LocalKinesisThread:
    """The endpoint in a thread with an event loop of its own, for synchronous code."""

    def __init__(self, endpoint: LocalKinesis, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self._loop = loop

    @property
    def url(self) -> str:
        """The URL of the endpoint, to be used as `aws.endpoint`."""
        return self.endpoint.url

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self.endpoint.port

    def properties(self) -> dict[str, str]:
        """Return the properties with which a job connects to this endpoint."""
        return self.endpoint.properties()

    def create_stream(self, name: str, shard_count: int = 1) -> LocalStream:
        """Add a stream. Raises: ConfigurationError if Kinesis does not allow the name or `shard_count`, or if the name is taken."""
        self.call(self.endpoint.create_stream, name, shard_count)
        return LocalStream(self, name)

    def stream(self, name: str) -> LocalStream:
        """Return the stream of that name. A test can put records into it directly."""
        return LocalStream(self, name)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the endpoint's event loop, and return its result.

        Use the endpoint's account, faults and ManualClock only in this way, because they are not thread-safe.
        """

        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)


class LocalStream:
    """A stream of an endpoint that runs in a thread. It can put records without a Kinesis client."""

    def __init__(self, served: LocalKinesisThread, name: str) -> None:
        self.name = name
        self._served = served
        self._record_count = 0

    def put(self, *payloads: object, key: str | None = None) -> None:
        """Put a record for each payload: bytes unchanged, text as UTF-8, anything else as JSON.

        `key`: the partition key of all records. Without it each record has another key, so that they spread over the shards.
        """
        encoded = [_encode(payload) for payload in payloads]
        self._served.call(self._put_all, encoded, key)

    def split(self, shard_id: str) -> tuple[str, ...]:
        """Split a shard in the middle of its hash range, and return the ids of its children. Raises: ApiError if the shard is closed."""
        return self._served.call(lambda: self._served.endpoint.stream(self.name).split(shard_id))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge two adjacent shards, the one with the lower hash keys first, and return the child's id.

        Raises: ApiError if the shards are not adjacent in this order, or if one is closed.
        """
        return self._served.call(lambda: self._served.endpoint.stream(self.name).merge(shard_id, adjacent_shard_id))

    def _put_all(self, payloads: list[bytes], key: str | None) -> None:
        stream = self._served.endpoint.stream(self.name)
        for payload in payloads:
            stream.put(payload, f"key-{self._record_count}" if key is None else str(key))
            self._record_count += 1


def _open_storage(account: Account, folder: Path) -> AccountStorage:
    from .storage import AccountStorage  # Imported here because it loads SQLite, which is slow.

    return AccountStorage(account, folder)


def _encode(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else msgspec.json.encode(payload)


class ServerOptions(TypedDict, total=False):
    """The settings of `LocalKinesis` that `serve_in_thread` accepts."""

    clock: Clock | None
    quotas: Quotas | None
    credentials: Mapping[str, str] | None
    delays: Delays | None
    region: str
    consumer_limit: int
    allow_remote: bool
    faults: str | Sequence[FaultRule]
    seed: int
    http2: bool
    tls: bool
    data: Path | str | None


log = logging.getLogger("recordpublisher.local.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_STREAMS = 1_000
"""The most requests that one connection may have open at a time. The service's number is not documented."""
FOREVER_SECONDS = 1e6
CLOSE_SECONDS = 0.05
"""When the server closes, open subscriptions are cancelled after this time (seconds)."""


NO_ERROR = 0

VALID_DAYS = 365


class AiohttpServer:
    """A listener for HTTP/1.1, with TLS if there is a certificate. It uses aiohttp."""

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
            shutdown_timeout=0.05,  # After this time open subscriptions are cancelled. 0 would wait for ever.
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
        except web.RequestPayloadError:
            # The error is not logged here, because aiohttp logs it when it has the response.
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
    """A listener for HTTP/2 and HTTP/1.1, with TLS if there is a certificate. It uses Hypercorn.

    Raises: ConfigurationError if the extra local is not installed.
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
        """Answer one ASGI request. Stop if the client disconnects."""
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
        except ConnectionAbortedError:  # Only this HTTP/2 stream fails, because the connection has other streams.
            response = Response(500, {hdrs.CONTENT_LENGTH: "0"}, b"")
        if response is not None:
            await _respond(response, send)


class Certificate:
    """A folder with a TLS certificate and its key. Only this user can read it.

    The certificate is valid for one year, for `localhost` and `host`. Raises: ConfigurationError if the extra local is not installed.
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
    """Shorten the log entry of a malformed request, such as one with TLS, to one line. Return True, so that the entry is logged."""
    error = entry.exc_info[1] if entry.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        entry.msg, entry.args, entry.exc_info = "malformed request: %.200s", (" ".join(str(error).split()),), None
    return True


log.addFilter(_without_traceback)


class _HttpResponseStream:
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
    """A response over HTTP/2 that stays open.

    A fault that breaks the connection in HTTP/1.1 ends only this response here, because the connection may have others.
    """

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
        """Do nothing. The writer raises ConnectionAbortedError next, and that error ends the response."""


@cache
def ignore_goaway_without_error() -> None:
    """Make hypercorn's connections in this process ignore a GOAWAY that reports no error.

    The AWS SDK for JavaScript sends it with each subscription, while responses are in progress. h2 treats the first one as the end of the
    connection, and hypercorn closes it. But in HTTP/2, open streams continue after it (RFC 9113, 6.8), and the client closes the connection
    when they have ended.
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
    """Return a self-signed certificate for this host, and its key, both as PEM."""
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
