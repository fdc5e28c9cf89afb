"""The wire protocol: four bytes of length, then a message as MessagePack. First both sides prove the token, then heartbeats follow.

The handshake has three messages: `Challenge` with the server's nonce, `AuthResponse` with the client's proof and nonce, and `ServerProof`.
Each proof is a keyed hash over both nonces and the role of the side that proves, so that it is useless on another connection or in the
other role. The client proves first, because otherwise any client could get a proof from the server and try tokens against it.
"""

import hashlib
import hmac
import secrets
from typing import Any, Literal

import msgspec

VERSION = 4
"""The version of all messages, including heartbeats.

`Challenge` and the first field of `AuthResponse` are the same in every version, so that each side can read the other side's version.
"""

LENGTH_BYTES = 4
NONCE_BYTES = 32

MAX_HANDSHAKE_BYTES = 256
"""The longest frame that either side accepts before the other side has proved the token."""
HANDSHAKE_TIMEOUT_SECONDS = 5.0
"""How long either side waits for the proof of the other side (seconds)."""


class FrameError(Exception):
    """Raised if the other side violates the protocol; the connection must end."""


def encode_frame(encoder: msgspec.msgpack.Encoder, message: Any) -> bytes:
    """Return a message as it is sent."""
    body = encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class MessageReader:
    """Owns the received bytes that are not a whole frame yet: at most `limit` bytes, plus the bytes of one read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def allow(self, limit: int) -> None:
        """Accept frames of up to `limit` bytes from now on."""
        self._limit = limit

    def feed(self, data: bytes | memoryview) -> None:
        """Append received bytes."""
        self._buffer += data

    def begins_with(self, prefix: bytes) -> bool:
        """Return whether the bytes that were not removed yet begin with `prefix`."""
        return self._buffer.startswith(prefix)

    def next_frame(self) -> bytes | None:
        """Remove and return the next whole frame, or return None if there is none. Raises: FrameError if it is longer than the limit."""
        buffer = self._buffer
        if len(buffer) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
        if end > LENGTH_BYTES + self._limit:
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
    """The client's first frame: its proof of the token, and its own nonce (none before version 3)."""

    version: int
    mac: bytes
    nonce: bytes = b""


class ServerProof(msgspec.Struct, frozen=True, array_like=True, tag="proof"):
    """The server's second frame: its own proof of the token. Before it, the client sends no report and accepts no response."""

    mac: bytes


RejectReason = Literal["token", "version", "capacity"]


class RejectFrame(msgspec.Struct, frozen=True, array_like=True, tag="reject"):
    """Tells the client why the server closes the connection."""

    reason: RejectReason


def new_challenge() -> Challenge:
    """Return a challenge with a nonce that was never used before."""
    return Challenge(VERSION, secrets.token_bytes(NONCE_BYTES))


def sign_challenge(token: str, challenge: Challenge) -> AuthResponse:
    """Return the response of a client that has the token, with a nonce that was never used before."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return AuthResponse(VERSION, _proof("client", token, challenge.nonce, nonce), nonce)


def is_authentic(response: AuthResponse, token: str, challenge: Challenge) -> bool:
    """Return whether the client has the token. This takes the same time for every wrong response.

    Raises: FrameError if a nonce has another length.
    """
    return hmac.compare_digest(response.mac, _proof("client", token, challenge.nonce, response.nonce))


def sign_response(token: str, challenge: Challenge, response: AuthResponse) -> ServerProof:
    """Return the proof of a server that has the token. Raises: FrameError if a nonce has another length."""
    return ServerProof(_proof("server", token, challenge.nonce, response.nonce))


def is_proven(proof: ServerProof, token: str, challenge: Challenge, response: AuthResponse) -> bool:
    """Return whether the server has the token. This takes the same time for every wrong proof."""
    return hmac.compare_digest(proof.mac, sign_response(token, challenge, response).mac)


def _proof(role: Literal["client", "server"], token: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the HMAC-SHA256 of the version, the role and both nonces, with the token as key.

    The length of a nonce is fixed, so no two handshakes have equal input. Raises: FrameError if a nonce has another length.
    """
    if len(server_nonce) != NONCE_BYTES or len(client_nonce) != NONCE_BYTES:
        raise FrameError(f"a nonce has {NONCE_BYTES} bytes")
    message = f"recordpublisher tracker {VERSION} {role} ".encode() + server_nonce + client_nonce
    return hmac.digest(token.encode("utf-8", "surrogatepass"), message, hashlib.sha256)
