"""Frames: four bytes of length, then a message as MessagePack. Nothing longer than a limit is ever kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any, Literal

import msgspec

HEADER = 4


class FrameError(Exception):
    """The other side does not keep to the format; the connection has to end."""


def framed(encoder: msgspec.msgpack.Encoder, message: Any) -> bytes:
    """A message as it goes over the wire."""
    body = encoder.encode(message)
    return len(body).to_bytes(HEADER, "big") + body


class FrameReader:
    """Owns the bytes of a connection that do not make a whole frame yet; `limit` bytes at most, and what one read brings."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Take what was read."""
        self._kept += data

    def next_frame(self) -> bytes | None:
        """The next whole frame. Raises: FrameError for one longer than the limit."""
        kept = self._kept
        if len(kept) < HEADER:
            return None
        end = HEADER + int.from_bytes(kept[:HEADER], "big")
        if end > HEADER + self.limit:
            raise FrameError("a frame is too long")
        if len(kept) < end:
            return None
        frame = bytes(kept[HEADER:end])
        del kept[:end]
        return frame


VERSION = 1


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="challenge"):
    """The server's first frame."""

    version: int
    number: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The client's first frame: the keyed hash (HMAC-SHA256) of the number under the token."""

    version: int
    keyed_hash: bytes


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    """Why the server hangs up."""

    reason: Literal["token", "version", "full"]


def new_challenge() -> Challenge:
    """One that was never used before."""
    return Challenge(VERSION, secrets.token_bytes(32))


def proof_of(token: str, challenge: Challenge) -> Proof:
    """The answer of somebody who has the token."""
    return Proof(VERSION, hmac.digest(token.encode(), b"recordpublisher tracker" + challenge.number, hashlib.sha256))


def is_proof(proof: Proof, token: str, challenge: Challenge) -> bool:
    """Whether the answer is right; takes the same time for every wrong one."""
    return hmac.compare_digest(proof.keyed_hash, proof_of(token, challenge).keyed_hash)
