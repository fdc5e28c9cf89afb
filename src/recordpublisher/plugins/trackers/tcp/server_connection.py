"""Visitor: the server's side of one connection; whatever comes through it hurts nobody else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Literal, Protocol

import msgspec

from recordpublisher.fetcher.coordination.heartbeat_messages import Answer, Statement

from .group_registry import Office, Offices
from .protocol import VERSION, Farewell, FrameError, FrameReader, Proof, framed, is_proof, new_challenge

GREETING_BYTES = 256
"""The longest frame of somebody who is not known yet."""
STATEMENT_BYTES = 96 * 1024
"""The longest frame of a subtask: two lists of shard keys."""
FRAMES_A_TURN = 32
"""How many frames one connection may have read before the others get their turn."""
PAUSE_SECONDS = 0.02
UNREAD_BYTES = 64 * 1024
"""A client that leaves more answers unread, here and as much again in the kernel, is hung up on."""

_ENCODER = msgspec.msgpack.Encoder()
_PROOFS = msgspec.msgpack.Decoder(Proof)
_STATEMENTS = msgspec.msgpack.Decoder(Statement)


class House(Protocol):
    """What a visitor needs of the server."""

    offices: Offices
    token: str
    buffer: memoryview

    def now(self) -> float:
        """Milliseconds that only grow."""
        ...

    def arrived(self, visitor: Visitor) -> None:
        """A connection was made."""
        ...

    def known(self, visitor: Visitor) -> None:
        """A connection has the token."""
        ...

    def refused(self, reason: str) -> None:
        """A connection was refused."""
        ...

    def gone(self, visitor: Visitor) -> None:
        """A connection is closed."""
        ...


class Visitor(asyncio.BufferedProtocol):
    """Owns one connection: first a greeting, then statements and answers."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._frames = FrameReader(GREETING_BYTES)
        self._challenge = new_challenge()
        self._is_known = False
        self._office: Office | None = None
        self._place: tuple[str, int, int] | None = None
        self._turn: asyncio.TimerHandle | None = None
        self.counter = -1
        self.last_heard = house.now()

    def connection_made(self, transport: Any) -> None:
        """Ask for the token."""
        self._transport: asyncio.Transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES)
        self._house.arrived(self)
        self._send(self._challenge)

    def get_buffer(self, sizehint: int) -> memoryview:
        """One buffer for all connections: it is read from before the next connection is."""
        return self._house.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read whole frames, a few at a time."""
        self._frames.feed(self._house.buffer[:nbytes])
        self._read_frames()

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the seat."""
        if self._turn is not None:
            self._turn.cancel()
        if self._office is not None and self._place is not None:
            self._house.offices.leave(self._office, self, self._place[1])
        self._house.gone(self)

    def tell(self, answer: Answer) -> None:
        """Send an answer, unless the client has stopped reading."""
        if self._transport.get_write_buffer_size() > UNREAD_BYTES:
            self.hang_up()
        else:
            self._send(answer)

    def hang_up(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _read_frames(self) -> None:
        try:
            for _ in range(FRAMES_A_TURN):
                frame = self._frames.next_frame()
                if frame is None:
                    self._go_on_reading()
                    return
                self._read(frame)
                if self._transport.is_closing():
                    return
        except (FrameError, msgspec.DecodeError, UnicodeDecodeError):
            self._house.refused("malformed")
            self.hang_up()
            return
        self._transport.pause_reading()
        self._turn = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._read_frames)

    def _go_on_reading(self) -> None:
        if self._turn is not None:
            self._turn = None
            self._transport.resume_reading()

    def _read(self, frame: bytes) -> None:
        if self._is_known:
            self._hear(_STATEMENTS.decode(frame))
        else:
            self._greet(_PROOFS.decode(frame))

    def _greet(self, proof: Proof) -> None:
        if proof.version != VERSION:
            self._refuse("version")
        elif not is_proof(proof, self._house.token, self._challenge):
            self._refuse("token")
        else:
            self._is_known = True
            self._frames.limit = STATEMENT_BYTES
            self._house.known(self)

    def _hear(self, said: Statement) -> None:
        now = self.last_heard = self._house.now()
        place = (said.group, said.subtask, said.parallelism)
        if said.subtask >= said.parallelism or self._place not in (None, place):
            raise FrameError("a connection speaks for one subtask that there is")
        if self._office is None:
            self._office, self._place = self._house.offices.office_of(said), place
        if self._office is None:
            self._refuse("full")
        else:
            self.tell(self._house.offices.take(self._office, self, said, now))

    def _refuse(self, reason: Literal["token", "version", "full"]) -> None:
        self._house.refused(reason)
        self._send(Farewell(reason))
        self._transport.close()

    def _send(self, message: Any) -> None:
        self._transport.write(framed(_ENCODER, message))
