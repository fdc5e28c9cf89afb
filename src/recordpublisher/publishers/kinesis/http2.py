"""SubscribeToShard over HTTP/2 (the extra `http2`): requests that the SDK has signed are sent over a pool of HTTP/2 connections.

Only this module imports `h2`, and `sdk/transport.py` imports it only if the properties select HTTP/2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from ..errors import ConfigurationError
from ..properties.config_fields import of_property
from ..properties.fan_out_properties import HTTP_PROTOCOL
from ..properties.reading_properties import REQUEST_TIMEOUT
from .endpoints import host_header, tls_name
from .error_mapping import StreamLostError
from .proxies import refuse_http2_proxy
from .trusted_cas import client_tls

_HTTP1_ONLY_HEADERS = {"host", "connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection"}
_MAX_ERROR_BODY_BYTES = 64 * 1024


class Http2Sender:
    """Sends requests over HTTP/2, with a connection pool for each server.

    The SDK still finds the endpoint, signs the requests, and parses errors.
    """

    def __init__(self, settings: Http2Settings) -> None:
        self._settings = settings
        self._pools: dict[str, Http2ConnectionPool] = {}

    async def send(self, request: AWSPreparedRequest, **_: Any) -> Http2Response:
        """Send a request and return the response. This handles the SDK's event `before-send`.

        Raises:

        - ConfigurationError if the SDK would use a proxy, or if the server does not support HTTP/2.
        - StreamLostError if the connection or the HTTP/2 stream is lost.
        - OSError if no connection can be opened, TimeoutError if that takes too long.
        """
        url = urlsplit(request.url)
        connection = await self._pool_of(url).connection()
        stream = connection.request(_headers(request, url), request.body)
        try:
            await stream.wait_for_headers()
        except BaseException:
            stream.close()
            raise
        return Http2Response(stream)

    async def close(self) -> None:
        """Close every connection; open streams end."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _pool_of(self, url: SplitResult) -> Http2ConnectionPool:
        server = f"{url.scheme}://{url.netloc}"
        if server not in self._pools:
            refuse_http2_proxy(url)
            self._pools[server] = Http2ConnectionPool(url, self._settings)
        return self._pools[server]


def _headers(request: AWSPreparedRequest, url: SplitResult) -> list[tuple[str, str]]:
    """Return the request's headers in the form of HTTP/2: names in lower case, and the signed host as the authority."""
    given = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    pseudo = {":method": request.method, ":authority": host_header(url), ":scheme": url.scheme, ":path": path}
    return [*pseudo.items(), *((name, value) for name, value in given.items() if name not in _HTTP1_ONLY_HEADERS)]


class Http2Response:
    """A response in the form that the SDK expects from its HTTP client."""

    def __init__(self, stream: Http2Stream) -> None:
        self.status_code = stream.status
        self.headers = HeadersDict(stream.headers)
        self.raw = stream

    @property
    async def content(self) -> bytes:
        """The body of an error response. A long body, such as a proxy's page, is truncated."""
        body = b""
        try:
            while len(body) < _MAX_ERROR_BODY_BYTES and (data := await self.raw.readany()):
                body += data
        finally:
            self.raw.close()
        return body


# --- connections --------------------------------------------------------------------------------------------------------------------

STREAM_WINDOW_BYTES = 128 * 1024
"""The flow-control window of a stream (bytes): enough for 2 MiB a second over a round trip of 60 ms."""
MAX_STREAMS = 100
"""The most streams of one connection, so that a lost connection ends only this many. The server may allow fewer."""
_LARGEST_WINDOW = 2**31 - 1  # The connection's own window is so large that only the windows of the streams limit.
_DEFAULT_WINDOW = 65_535
_STATUS = re.compile(r"[1-9][0-9]{2}")


@dataclass(frozen=True, slots=True)
class Http2Settings:
    """The settings of a connection.

    - `open_seconds`: the deadline for opening the connection.
    - `ca_bundle`: a file of trusted CAs, used instead of the SDK's list.
    - `ping_after_seconds`: after this time without a received byte the server is pinged. An open subscription sends an event about every 5
      s.
    - `ping_seconds`: the time in which the server must respond to a ping.
    """

    ca_bundle: str | None = None
    open_seconds: float = of_property(REQUEST_TIMEOUT, 1000)
    ping_after_seconds: float = 5.0
    ping_seconds: float = 2.0


class Http2ConnectionPool:
    """The connections to one server. If none of them has room for one more stream, another connection is opened.

    Requests that wait for a new connection share it, and share the error if it cannot be opened.
    """

    def __init__(self, url: SplitResult, settings: Http2Settings) -> None:
        self._url = url
        self._settings = settings
        self._connections: list[Http2Connection] = []
        self._opening: asyncio.Task[None] | None = None

    async def connection(self) -> Http2Connection:
        """Return a connection with room for one more stream. The caller must open the stream without awaiting in between.

        Raises: StreamLostError if the pool is closed or the connection is lost; ConfigurationError if the server does not support HTTP/2;
        OSError or TimeoutError if no connection can be opened.
        """
        while True:
            self._connections = [connection for connection in self._connections if not connection.is_closed]
            for connection in self._connections:
                if connection.has_capacity and await connection.is_alive() and connection.has_capacity:
                    return connection
            await self._open_another()

    async def close(self) -> None:
        """Close every connection; open streams end."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    async def _open_another(self) -> None:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            # If all waiters have been cancelled, nothing else would retrieve the exception, and asyncio would log it.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        opening = self._opening
        # A waiter that is cancelled must not cancel this task, because other waiters share it.
        await asyncio.wait([opening])
        if opening.cancelled():
            raise StreamLostError("closed")
        opening.result()

    async def _open(self) -> None:
        settings, host, tls = self._settings, self._url.hostname or "", self._url.scheme == "https"
        async with asyncio.timeout(settings.open_seconds):
            context = await asyncio.to_thread(client_tls, settings.ca_bundle, self._url.geturl(), "h2") if tls else None
            _, connection = await asyncio.get_running_loop().create_connection(
                partial(Http2Connection, settings),
                host,
                self._url.port or (443 if tls else 80),
                ssl=context,
                server_hostname=tls_name(self._url) if tls else None,
            )
            try:
                await connection.wait_until_ready()
            except BaseException:
                connection.close()
                raise
        self._connections.append(connection)


class Http2Connection(asyncio.Protocol):
    """One HTTP/2 connection: a socket, the protocol state and the open streams. All work is done in callbacks, so no task can leak.

    The reader of a stream gets StreamLostError if the server resets the stream, or if the connection is lost or ended by GOAWAY.
    """

    def __init__(self, settings: Http2Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._h2 = _client_protocol()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Http2Stream] = {}
        self._failure: Exception | None = None
        self._ready = asyncio.Event()
        self._closed = asyncio.Event()
        self._received = asyncio.Event()
        self._received_at = self._loop.time()
        self._is_unresponsive = False

    # --- for the pool -------------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether no more requests can be sent."""
        return self._failure is not None

    @property
    def has_capacity(self) -> bool:
        """Whether one more stream may be opened."""
        allowed = min(MAX_STREAMS, self._h2.remote_settings.max_concurrent_streams)
        return not self.is_closed and len(self._streams) < allowed

    async def wait_until_ready(self) -> None:
        """Wait until the server has sent how many streams it allows.

        Raises: StreamLostError if the connection is lost, or if the server allows no stream; ConfigurationError if the server does not
        speak HTTP/2.
        """
        await self._ready.wait()
        if self._failure is None and not self.has_capacity:
            self._fail(StreamLostError("the server allows no streams"))
        if self._failure is not None:
            raise self._failure

    async def is_alive(self) -> bool:
        """Return whether the server responds. If nothing has arrived for a while, the server is pinged."""
        # If a ping was not answered, the connection gets no new streams. Its open streams continue until their own time-outs (F5).
        if self.is_closed or self._is_unresponsive:
            return False
        if self._loop.time() - self._received_at < self._settings.ping_after_seconds:
            return True
        self._received.clear()
        with self._protocol():
            self._h2.ping(b"\0" * 8)
        try:
            async with asyncio.timeout(self._settings.ping_seconds):
                await self._received.wait()
        except TimeoutError:
            self._is_unresponsive = True
            self._close_if_unused()
        return not self._is_unresponsive and not self.is_closed

    def request(self, headers: Sequence[tuple[str, str]], body: bytes) -> Http2Stream:
        """Send one request. The response arrives over the returned stream. Raises: StreamLostError if the connection is closed."""
        if not self.is_closed:
            with self._protocol():
                stream_id = self._h2.get_next_available_stream_id()
                self._h2.send_headers(stream_id, headers)
                self._h2.send_data(stream_id, body, end_stream=True)
                stream = self._streams[stream_id] = Http2Stream(self, stream_id)
                return stream
        raise StreamLostError(str(self._failure))

    def close(self) -> None:
        """Close all streams and the connection at once."""
        if not self.is_closed:
            with self._protocol():
                self._h2.close_connection()
            self._fail(StreamLostError("closed"))

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        if self._transport is not None:
            await self._closed.wait()

    # --- for its streams ----------------------------------------------------------------------------------------------------------

    def acknowledge(self, stream_id: int, length: int) -> None:
        """Let the server send `length` more bytes on the stream `stream_id`."""
        if not self.is_closed:
            with self._protocol():
                self._h2.acknowledge_received_data(length, stream_id)

    def reset(self, stream_id: int) -> None:
        """Cancel the stream `stream_id`, because its reader has closed it."""
        if self._streams.pop(stream_id, None) is not None:
            with self._protocol():
                self._h2.reset_stream(stream_id, error_code=8)  # CANCEL
            self._close_if_unused()

    # --- asyncio's protocol -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Send the connection preface and settings."""
        self._transport = transport
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._fail(_not_http2("the server does not offer h2 (ALPN)"))
            return
        with self._protocol():
            self._h2.initiate_connection()
            self._h2.increment_flow_control_window(_LARGEST_WINDOW - _DEFAULT_WINDOW)

    def data_received(self, data: bytes) -> None:
        """Pass the received events to the streams."""
        self._received_at = self._loop.time()
        self._received.set()
        self._is_unresponsive = False
        if not self._ready.is_set() and data.startswith(b"HTTP/1"):
            self._fail(_not_http2("the server responds in HTTP/1.1"))
        if not self.is_closed:
            with self._protocol():
                for event in self._h2.receive_data(data):
                    self._handle(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every stream."""
        self._fail(StreamLostError(f"connection lost{f': {exc}' if exc else ''}"))
        self._closed.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case RemoteSettingsChanged():
                self._ready.set()
            case ConnectionTerminated():
                self._fail(StreamLostError(f"the server ended the connection (GOAWAY {event.error_code!s})"))
            case ResponseReceived() if stream:
                stream.on_headers(event.headers)
            case DataReceived() if stream:
                stream.on_data(event.data, event.flow_controlled_length)
            case StreamEnded() if stream:
                stream.on_end()
                del self._streams[event.stream_id]
            case StreamReset() if stream:
                stream.fail(f"the server reset the stream ({event.error_code!s})")
                del self._streams[event.stream_id]

    @contextmanager
    def _protocol(self) -> Iterator[None]:
        """Send what the `with` block has queued. A protocol error in the block fails the connection."""
        try:
            yield
        except H2Error as error:
            self._fail(StreamLostError(f"{type(error).__name__}: {error}"))
        else:
            self._send()

    def _send(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = error
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(str(error))
        self._ready.set()
        self._received.set()
        if self._transport is not None:
            self._send()
            self._transport.abort()

    def _close_if_unused(self) -> None:
        if self._is_unresponsive and not self._streams:
            self._fail(StreamLostError("the server did not respond to a ping"))


def _client_protocol() -> H2Connection:
    """Return the protocol state of a client: without server push, and with `STREAM_WINDOW_BYTES` for each stream."""
    protocol = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    values = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES}
    protocol.local_settings = Settings(client=True, initial_values=values)
    return protocol


def _not_http2(reason: str) -> ConfigurationError:
    return ConfigurationError(HTTP_PROTOCOL.key, "HTTP2", "HTTP1_1 for this endpoint", reason=reason)


class Http2Stream:
    """The response of an open event stream, as `EventSubscription` reads it. It keeps received bytes until they are read.

    `flow_control`: the connection, which lets the server send more bytes, or cancels the stream. Only one caller may read at a time.
    """

    # The server may send more bytes only when the reader asks for more. So an unread stream and its reader together hold at most one window
    # of bytes, and the server stops sending on this stream only (F1).

    connection = None
    """Always None, because a stream has no socket of its own to pause."""

    def __init__(self, flow_control: Http2Connection, stream_id: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.unacknowledged_bytes = 0
        """Number of received bytes that were not acknowledged yet. They still use up the flow-control window."""
        self._flow_control = flow_control
        self._id = stream_id
        self._chunks: list[bytes] = []
        self._delivered = 0
        self._ended = False
        self._failure: str | None = None
        self._changed = asyncio.Event()

    @property
    def content(self) -> Http2Stream:
        """The object with the method `readany`, which `EventSubscription` calls: this stream itself."""
        return self

    async def wait_for_headers(self) -> None:
        """Wait for status and headers. Raises: StreamLostError if the stream fails before they arrive."""
        while not self.status:
            await self._wait()

    async def readany(self) -> bytes:
        """Return the received bytes, or b"" at the end of the body. A cancelled call loses nothing.

        Raises: StreamLostError if the stream has failed.
        """
        self._acknowledge(self._delivered)
        self._delivered = 0
        while not self._chunks:
            if self._ended:
                return b""
            # The bytes were only padding. The server may send as many more at once, because they take no memory.
            self._acknowledge(self.unacknowledged_bytes)
            await self._wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._delivered = self.unacknowledged_bytes
        return data

    def close(self) -> None:
        """Close the stream; safe to call twice."""
        self._chunks.clear()
        if not self._ended and self._failure is None:
            self.fail("closed")
            self._flow_control.reset(self._id)
        self._acknowledge(self.unacknowledged_bytes)
        self._delivered = 0

    # --- called by the connection ------------------------------------------------------------------------------------------------

    def on_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Store status and headers. If the status is not a number, the stream fails."""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        status = self.headers.pop(":status", "")
        if _STATUS.fullmatch(status):
            self.status = int(status)
            self._changed.set()
        else:
            self.fail(f"not an HTTP status: {status[:80]!r}")
            self._flow_control.reset(self._id)

    def on_data(self, data: bytes, length: int) -> None:
        """Store received bytes. `length` is how much of the window they use, including padding."""
        if data:
            self._chunks.append(data)
        self.unacknowledged_bytes += length
        self._changed.set()

    def on_end(self) -> None:
        """Mark the body as complete."""
        self._ended = True
        self._changed.set()

    def fail(self, why: str) -> None:
        """Mark the stream as failed: no more bytes will arrive."""
        self._failure = self._failure or why
        self._changed.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        if self._failure is not None:
            raise StreamLostError(self._failure)
        self._changed.clear()
        await self._changed.wait()

    def _acknowledge(self, length: int) -> None:
        if length:
            self.unacknowledged_bytes -= length
            self._flow_control.acknowledge(self._id, length)
