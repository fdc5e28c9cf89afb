"""The client's side of one connection: both sides prove the token, then heartbeats are sent and responses are passed on."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from recordpublisher.publishers.errors import UNDECODABLE

from .protocol import (
    MAX_HANDSHAKE_BYTES,
    VERSION,
    AuthResponse,
    Challenge,
    FrameError,
    MessageReader,
    RejectFrame,
    RejectReason,
    ServerProof,
    encode_frame,
    is_proven,
    sign_challenge,
)
from .tls import connection_problem

MAX_RESPONSE_BYTES = 128 * 1024
MAX_UNSENT_BYTES = 64 * 1024
"""If more than this waits to be sent, the tracker is not reading, and requests are dropped: a later one has the whole state."""

_ENCODER = msgspec.msgpack.Encoder()
_HANDSHAKE_DECODER = msgspec.msgpack.Decoder(Challenge | ServerProof | RejectFrame)
_RESPONSE_DECODER = msgspec.msgpack.Decoder(HeartbeatResponse | RejectFrame)

_REJECT_TEXTS: dict[RejectReason, str] = {
    "token": "it rejects the token (flink.watermark.tracker.token)",
    "version": f"it does not accept version {VERSION} of the tracker protocol: run the same recordpublisher release on both sides",
    "capacity": "it has no capacity for another group",
}


class ClientConnection(asyncio.Protocol):
    """Owns one connection to a tracker.

    Calls `on_authenticated` when both sides have proved the token and requests may be sent, and `on_response` with every response.
    A server without the token gets no request, and nothing that it sends counts as a response.
    """

    def __init__(
        self,
        token: str,
        on_authenticated: Callable[[], None],
        on_response: Callable[[HeartbeatResponse], None],
        silence_hint: str = "",
    ) -> None:
        self._token = token
        self._on_authenticated = on_authenticated
        self._on_response = on_response
        self._frames = MessageReader(MAX_HANDSHAKE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._sent: tuple[Challenge, AuthResponse] | None = None
        self._is_authenticated = False
        self._has_received = False
        self._silence_hint = silence_hint
        self._close_reason = "the connection was closed"
        self.handshake_ended = asyncio.Event()
        """Set when the server has proved the token, or when the connection was closed before that."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def close_reason(self) -> str:
        """Why the connection was closed, and what may be wrong if the tracker had sent nothing."""
        if self._has_received or not self._silence_hint:
            return self._close_reason
        return f"{self._close_reason} before the tracker sent anything: {self._silence_hint}"

    def connection_made(self, transport: Any) -> None:
        """Wait for the challenge."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read and handle whole frames."""
        self._has_received = True
        self._frames.feed(data)
        try:
            while not self._is_closing and (frame := self._frames.next_frame()) is not None:
                self._handle(frame)
        except (FrameError, *UNDECODABLE):
            self.abort("it does not speak the tracker protocol")

    def connection_lost(self, error: Exception | None) -> None:
        """Store why the connection was lost. Nothing can be sent any longer."""
        if error is not None:
            self._close_reason = connection_problem(error)
        self._is_authenticated = False
        self.handshake_ended.set()
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, request: HeartbeatRequest) -> None:
        """Send, or drop the request if the tracker is not reading."""
        transport = self._transport
        if self._is_authenticated and transport is not None and transport.get_write_buffer_size() <= MAX_UNSENT_BYTES:
            transport.write(encode_frame(_ENCODER, request))

    def abort(self, reason: str | None = None) -> None:
        """Close the connection at once."""
        if reason is not None:
            self._close_reason = reason
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if self._transport is not None:
            self._transport.close()

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _handle(self, frame: bytes) -> None:
        message: HeartbeatResponse | Challenge | ServerProof | RejectFrame
        message = (_RESPONSE_DECODER if self._is_authenticated else _HANDSHAKE_DECODER).decode(frame)
        if isinstance(message, HeartbeatResponse):
            self._on_response(message)
        elif isinstance(message, RejectFrame):
            self.abort(_REJECT_TEXTS[message.reason])
        elif isinstance(message, Challenge):
            self._answer_challenge(message)
        else:
            self._check_proof(message)

    def _answer_challenge(self, challenge: Challenge) -> None:
        if challenge.version != VERSION:
            self.abort(
                f"it speaks version {challenge.version} of the tracker protocol and this subtask version {VERSION}: "
                "run the same recordpublisher release on both sides"
            )
        elif self._sent is not None:
            raise FrameError("a second challenge")
        elif self._transport is not None:
            self._sent = (challenge, sign_challenge(self._token, challenge))
            self._transport.write(encode_frame(_ENCODER, self._sent[1]))

    def _check_proof(self, proof: ServerProof) -> None:
        if self._sent is None:
            raise FrameError("a proof before the challenge")
        if is_proven(proof, self._token, *self._sent):
            self._frames.allow(MAX_RESPONSE_BYTES)
            self._is_authenticated = True
            self.handshake_ended.set()
            self._on_authenticated()
        else:
            self.abort(
                "it does not have the token (flink.watermark.tracker.token): another server listens at flink.watermark.tracker.address"
            )
