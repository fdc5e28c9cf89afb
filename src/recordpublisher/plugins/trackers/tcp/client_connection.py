"""Link: the client's side of one connection: shows the token, sends statements, hands answers on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import Answer, Statement

from .protocol import VERSION, Challenge, Farewell, FrameError, FrameReader, framed, proof_of

ANSWER_BYTES = 128 * 1024
UNSENT_BYTES = 64 * 1024
"""While more than this waits to be sent the tracker is not reading, and what we say now it will hear from a later statement."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Challenge | Answer | Farewell)


class Link(asyncio.Protocol):
    """Owns one connection to a tracker. `known` is called when statements may be sent, `heard` with every answer."""

    def __init__(self, token: str, known: Callable[[], None], heard: Callable[[Answer], None]) -> None:
        self._token = token
        self._known = known
        self._heard = heard
        self._frames = FrameReader(ANSWER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._is_known = False
        self.reason = "the connection was closed"
        """Why it ended."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Wait for the challenge."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read whole frames."""
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._read(_DECODER.decode(frame))
        except (FrameError, msgspec.DecodeError, UnicodeDecodeError):
            self.reason = "it does not speak as a tracker does"
            self.hang_up()

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing can be sent any more."""
        if error is not None:
            self.reason = str(error) or type(error).__name__
        self._is_known = False
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, statement: Statement) -> None:
        """Send, or drop what the tracker would not read now."""
        if self._is_known and self._transport is not None and self._transport.get_write_buffer_size() <= UNSENT_BYTES:
            self._transport.write(framed(_ENCODER, statement))

    def hang_up(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End when everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def _read(self, message: Challenge | Answer | Farewell) -> None:
        if isinstance(message, Answer):
            self._heard(message)
        elif isinstance(message, Farewell):
            self.reason = _FAREWELLS[message.reason]
        elif message.version != VERSION:
            self.reason = _FAREWELLS["version"]
            self.hang_up()
        elif self._transport is not None and not self._is_known:
            self._transport.write(framed(_ENCODER, proof_of(self._token, message)))
            self._is_known = True
            self._known()


_FAREWELLS = {
    "token": "it refuses the token (flink.watermark.tracker.token)",
    "version": "it is of another version",
    "full": "it has no room for another group",
}
