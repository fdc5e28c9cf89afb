"""ClientConnection: the client's side of one connection: authenticates, sends heartbeats, passes responses on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse

from .protocol import (
    VERSION,
    Challenge,
    FrameError,
    FrameReader,
    RejectFrame,
    RejectReason,
    encode_frame,
    sign_challenge,
)

MAX_RESPONSE_BYTES = 128 * 1024
MAX_UNSENT_BYTES = 64 * 1024
"""While more than this waits to be sent, the tracker is not reading, and requests are dropped: a later one has the whole state."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Challenge | HeartbeatResponse | RejectFrame)

_REJECT_TEXTS: dict[RejectReason, str] = {
    "token": "it rejects the token (flink.watermark.tracker.token)",
    "version": f"it does not accept version {VERSION} of the tracker protocol: run the same recordpublisher release on both sides",
    "capacity": "it has no capacity for another group",
}


class ClientConnection(asyncio.Protocol):
    """Owns one connection to a tracker.

    Calls `on_authenticated` when requests may be sent, and `on_response` with every response.
    """

    def __init__(
        self, token: str, on_authenticated: Callable[[], None], on_response: Callable[[HeartbeatResponse], None]
    ) -> None:
        self._token = token
        self._on_authenticated = on_authenticated
        self._on_response = on_response
        self._frames = FrameReader(MAX_RESPONSE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._is_authenticated = False
        self.close_reason = "the connection was closed"
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Wait for the challenge."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read whole frames."""
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._handle(_DECODER.decode(frame))
        except (FrameError, msgspec.DecodeError, UnicodeDecodeError):
            self.close_reason = "it does not speak the tracker protocol"
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Note why the connection was lost; nothing can be sent any more."""
        if error is not None:
            self.close_reason = str(error) or type(error).__name__
        self._is_authenticated = False
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, request: HeartbeatRequest) -> None:
        """Send, or drop the request if the tracker is not reading."""
        transport = self._transport
        if self._is_authenticated and transport is not None and transport.get_write_buffer_size() <= MAX_UNSENT_BYTES:
            transport.write(encode_frame(_ENCODER, request))

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close when everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def _handle(self, message: Challenge | HeartbeatResponse | RejectFrame) -> None:
        if isinstance(message, HeartbeatResponse):
            self._on_response(message)
        elif isinstance(message, RejectFrame):
            self.close_reason = _REJECT_TEXTS[message.reason]
        elif message.version != VERSION:
            self.close_reason = (
                f"it speaks version {message.version} of the tracker protocol and this subtask version {VERSION}: "
                "run the same recordpublisher release on both sides"
            )
            self.abort()
        elif self._transport is not None and not self._is_authenticated:
            self._transport.write(encode_frame(_ENCODER, sign_challenge(self._token, message)))
            self._is_authenticated = True
            self._on_authenticated()
