"""Opaque tokens that only this endpoint can have made: shard iterators and page tokens."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from secrets import randbits
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class Tokens:
    """Owns the seed that a token must carry; a token of another endpoint, or a made-up one, does not open."""

    def __init__(self) -> None:
        self._seed = randbits(32)

    def seal(self, content: msgspec.Struct) -> str:
        """Return the content as one opaque string."""
        body = msgspec.msgpack.encode(content)
        return urlsafe_b64encode(zlib.crc32(body, self._seed).to_bytes(4, "big") + body).decode()

    def open(self, token: str, kind: type[T]) -> T | None:
        """Return the content, or None when the token is not one of ours or of another kind."""
        try:
            raw = urlsafe_b64decode(token)
            if zlib.crc32(raw[4:], self._seed).to_bytes(4, "big") != raw[:4]:
                return None
            return msgspec.msgpack.decode(raw[4:], type=kind)
        except (ValueError, msgspec.DecodeError):
            return None
