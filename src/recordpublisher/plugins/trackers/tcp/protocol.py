"""Frames: four bytes of length, then a message as MessagePack. Nothing longer than a limit is ever kept."""

from __future__ import annotations

from typing import Any

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
