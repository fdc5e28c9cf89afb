"""The server's side of one connection. Whatever a client sends affects no other connection."""

import asyncio
import socket
from typing import Any, Protocol

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from recordpublisher.publishers.errors import UNDECODABLE

from .group_registry import GroupRegistry, RegisteredGroup
from .protocol import (
    MAX_HANDSHAKE_BYTES,
    VERSION,
    AuthResponse,
    FrameError,
    MessageReader,
    RejectFrame,
    RejectReason,
    encode_frame,
    is_authentic,
    new_challenge,
    sign_response,
)

MAX_REQUEST_BYTES = 96 * 1024
"""The longest frame of a subtask, which has two lists of shard keys."""
MAX_FRAMES_PER_TURN = 32
"""How many frames of one connection are handled before the other connections get their turn."""
TURN_PAUSE_SECONDS = 0.02
MAX_UNREAD_BYTES = 64 * 1024
"""A client with more unread responses than this here, and the same amount in the kernel, is disconnected."""

_TLS_RECORD = b"\x16\x03"
"""The first bytes of a TLS client. As a frame they are always too long."""

_ENCODER = msgspec.msgpack.Encoder()
_AUTH_DECODER = msgspec.msgpack.Decoder(AuthResponse)
_REQUEST_DECODER = msgspec.msgpack.Decoder(HeartbeatRequest)


class ClientOfServer(Protocol):
    """A connection of any kind, for the limits of the server."""

    last_request_at: float
    """When it sent its last request, or connected (ms of the monotonic clock)."""

    def abort(self) -> None:
        """Close the connection at once."""


class ConnectionListener(Protocol):
    """The part of the server that a connection uses: shared state, and callbacks for its events."""

    groups: GroupRegistry
    token: str
    read_buffer: memoryview

    def now(self) -> float:
        """Return the time of the monotonic clock (ms)."""

    def on_connected(self, connection: ClientOfServer) -> None:
        """Called when a connection was made."""

    def on_authenticated(self, connection: ClientOfServer) -> None:
        """Called when the client has proved the token."""

    def on_rejected(self, reason: str) -> None:
        """Called when a client was rejected."""

    def on_closed(self, connection: ClientOfServer) -> None:
        """Called when a connection was closed."""


class ServerConnection(asyncio.BufferedProtocol):
    """Owns one connection: first the authentication, then requests and responses."""

    def __init__(self, listener: ConnectionListener) -> None:
        self._listener = listener
        self._frames = MessageReader(MAX_HANDSHAKE_BYTES)
        self._challenge = new_challenge()
        self._is_authenticated = False
        self._group: RegisteredGroup | None = None
        self._member: tuple[str, int, int] | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self.last_request_number = -1
        self.last_request_at = listener.now()

    def connection_made(self, transport: Any) -> None:
        """Send the challenge."""
        self._transport: asyncio.Transport = transport
        accepted: socket.socket = transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_UNREAD_BYTES)
        # asyncio's own TCP_NODELAY leaves out accepted connections, and a frame after another one would wait 40 ms for its acknowledgement
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.on_connected(self)
        self._send(self._challenge)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that all connections share. It is emptied before the next connection is read."""
        return self._listener.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle whole frames, a few at a time."""
        self._frames.feed(self._listener.read_buffer[:nbytes])
        self._handle_frames()

    def connection_lost(self, error: Exception | None) -> None:
        """Disconnect the subtask."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if self._group is not None and self._member is not None:
            self._listener.groups.disconnect(self._group, self, self._member[1])
        self._listener.on_closed(self)

    def send_response(self, response: HeartbeatResponse) -> None:
        """Send a response, and disconnect a client that has stopped reading."""
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.abort()
        else:
            self._send(response)

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # --- helpers ----------------------------------------------------------------------------------------------------------------

    def _handle_frames(self) -> None:
        try:
            for _ in range(MAX_FRAMES_PER_TURN):
                frame = self._frames.next_frame()
                if frame is None:
                    self._resume_reading()
                    return
                self._handle(frame)
                if self._transport.is_closing():
                    return
        except (FrameError, *UNDECODABLE):
            self._listener.on_rejected("TLS, which is off" if self._frames.begins_with(_TLS_RECORD) else "malformed")
            self.abort()
            return
        # more frames may be buffered: read nothing more from the socket until they are handled
        self._transport.pause_reading()
        self._resume_timer = asyncio.get_running_loop().call_later(TURN_PAUSE_SECONDS, self._handle_frames)

    def _resume_reading(self) -> None:
        if self._resume_timer is not None:
            self._resume_timer = None
            self._transport.resume_reading()

    def _handle(self, frame: bytes) -> None:
        if self._is_authenticated:
            self._handle_request(_REQUEST_DECODER.decode(frame))
        else:
            self._authenticate(_AUTH_DECODER.decode(frame))

    def _authenticate(self, response: AuthResponse) -> None:
        if response.version != VERSION:
            self._reject("version")
        elif not is_authentic(response, self._listener.token, self._challenge):
            self._reject("token")
        else:
            self._is_authenticated = True
            self._frames.allow(MAX_REQUEST_BYTES)
            self._listener.on_authenticated(self)
            self._send(sign_response(self._listener.token, self._challenge, response))

    def _handle_request(self, request: HeartbeatRequest) -> None:
        now = self.last_request_at = self._listener.now()
        member = (request.group, request.subtask, request.parallelism)
        if request.subtask >= request.parallelism or self._member not in (None, member):
            raise FrameError("a connection reports for one existing subtask")
        if self._group is None:
            self._group, self._member = self._listener.groups.get_or_create(request), member
        if self._group is None:
            self._reject("capacity")
        else:
            self.send_response(self._listener.groups.handle_heartbeat(self._group, self, request, now))

    def _reject(self, reason: RejectReason) -> None:
        self._listener.on_rejected(reason)
        self._send(RejectFrame(reason))
        self._transport.close()

    def _send(self, message: Any) -> None:
        self._transport.write(encode_frame(_ENCODER, message))
