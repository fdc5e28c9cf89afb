"""Http2Connection: many streams with a flow-control window each, and a ping that checks whether the server responds."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property
from recordpublisher.publishers.properties.groups.reading import HTTP_PROTOCOL, REQUEST_TIMEOUT

from ..error_mapping import StreamLostError
from .http2_stream import Http2Stream

STREAM_WINDOW_BYTES = 128 * 1024
"""Flow-control window of a stream: enough for 2 MiB a second over a round trip of 60 ms."""
MAX_STREAMS = 100
"""Most streams of one connection, so that few are lost with it. The server may allow fewer."""
_LARGEST_WINDOW = 2**31 - 1  # the connection's window, so large that only the streams' windows limit
_DEFAULT_WINDOW = 65_535


@dataclass(frozen=True, slots=True)
class Http2Settings:
    """Settings of a connection.

    - `open_seconds`: the deadline for opening the connection.
    - `ca_bundle`: a file of trusted CAs, used instead of the SDK's certificates.
    - `ping_after_seconds`: the silence after which the server is pinged. An open subscription sends an event about
      every 5 s (F5).
    - `ping_seconds`: the time in which the server must respond to a ping.
    """

    ca_bundle: str | None = None
    open_seconds: float = of_property(REQUEST_TIMEOUT, 1000)
    ping_after_seconds: float = 5.0
    ping_seconds: float = 2.0


def _client_protocol() -> H2Connection:
    """Return the protocol state of a client, without server push and with our window."""
    protocol = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    values = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES}
    protocol.local_settings = Settings(client=True, initial_values=values)
    return protocol


class Http2Connection(asyncio.Protocol):
    """Owns a socket, the protocol state and the open streams. All work is done in callbacks, so there is no task to leak.

    The reader of a stream gets StreamLostError if the server resets the stream, or if the connection is lost or ended
    by GOAWAY.
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

    async def ready(self) -> None:
        """Wait until the server has sent how many streams it allows.

        Raises: StreamLostError if the connection is lost or no stream is allowed, ConfigurationError if the server does
        not speak HTTP/2.
        """
        await self._ready.wait()
        if self._failure is None and not self.has_capacity:
            self._fail(StreamLostError("the server allows no streams"))
        if self._failure is not None:
            raise self._failure

    async def is_alive(self) -> bool:
        """Return whether the server responds. A connection that was silent is pinged.

        A connection without a response gets no new streams. Its open streams continue until their own time-outs (F5).
        """
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
        """Send one request; the response arrives over the returned stream. Raises: StreamLostError if the connection is closed."""
        if not self.is_closed:
            with self._protocol():
                stream_id = self._h2.get_next_available_stream_id()
                self._h2.send_headers(stream_id, headers)
                self._h2.send_data(stream_id, body, end_stream=True)
                stream = self._streams[stream_id] = Http2Stream(self, stream_id)
                return stream
        raise StreamLostError(str(self._failure))

    def close(self) -> None:
        """End every stream and the connection at once."""
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
        """Let the server send `length` more bytes on a stream."""
        if not self.is_closed:
            with self._protocol():
                self._h2.acknowledge_received_data(length, stream_id)

    def reset(self, stream_id: int) -> None:
        """Cancel a stream that is no longer read."""
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
        """Send what the block has queued. A protocol error in the block fails the connection."""
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
            self._fail(StreamLostError("no response to a ping"))


def _not_http2(reason: str) -> ConfigurationError:
    return ConfigurationError(HTTP_PROTOCOL.key, "HTTP2", "HTTP1_1 for this endpoint", reason=reason)
