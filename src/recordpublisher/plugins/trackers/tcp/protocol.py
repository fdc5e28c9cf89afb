"""The wire protocol: four bytes of length, then a message as MessagePack; first the authentication, then heartbeats."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any, Literal

import msgspec

VERSION = 2
"""The version of all messages, heartbeats included. `Challenge` and the first field of `AuthResponse` are the same in every version, so
that each side can read the other's version."""

LENGTH_BYTES = 4


class FrameError(Exception):
    """The other side violates the protocol; the connection has to end."""


def encode_frame(encoder: msgspec.msgpack.Encoder, message: Any) -> bytes:
    """A message as it is sent."""
    body = encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class FrameReader:
    """Owns the received bytes that are not a whole frame yet: at most `limit`, plus the bytes of one read."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Append received bytes."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Remove and return the next whole frame. Raises: FrameError for one longer than the limit."""
        buffer = self._buffer
        if len(buffer) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
        if end > LENGTH_BYTES + self.limit:
            raise FrameError("a frame is too long")
        if len(buffer) < end:
            return None
        frame = bytes(buffer[LENGTH_BYTES:end])
        del buffer[:end]
        return frame


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="challenge"):
    """The server's first frame."""

    version: int
    nonce: bytes


class AuthResponse(msgspec.Struct, frozen=True, array_like=True):
    """The client's first frame: the HMAC-SHA256 of the nonce under the token."""

    version: int
    mac: bytes


RejectReason = Literal["token", "version", "capacity"]


class RejectFrame(msgspec.Struct, frozen=True, array_like=True, tag="reject"):
    """Why the server closes the connection."""

    reason: RejectReason


def new_challenge() -> Challenge:
    """A challenge with a nonce that was never used before."""
    return Challenge(VERSION, secrets.token_bytes(32))


def sign_challenge(token: str, challenge: Challenge) -> AuthResponse:
    """The response of a client that has the token."""
    return AuthResponse(
        VERSION, hmac.digest(token.encode(), b"recordpublisher tracker" + challenge.nonce, hashlib.sha256)
    )


def is_authentic(response: AuthResponse, token: str, challenge: Challenge) -> bool:
    """Whether the client has the token; takes the same time for every wrong response."""
    return hmac.compare_digest(response.mac, sign_challenge(token, challenge).mac)
