"""Event-stream frames from a byte stream: whole, checked, and copied once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from botocore.eventstream import (
    ChecksumMismatch,
    EventStreamHeaderParser,
    InvalidHeadersLength,
    InvalidPayloadLength,
)

from ..error_mapping import TruncatedStreamError

_PRELUDE = Struct("!III")  # length of the frame, length of its headers, checksum of these two
_CHECKSUM = Struct("!I")
_FRAME_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
_MAX_PAYLOAD_BYTES = 24 * 2**20  # as the SDK has it


class Frame(NamedTuple):
    """One frame; `payload` is a view of its bytes, not a copy."""

    headers: Mapping[str, Any]
    payload: memoryview


class FrameReader:
    """Owns the bytes that were read and not yet handed out: at most what the socket gave at once behind a frame's end (F1).

    The SDK's buffer copies all it holds at each chunk, which is quadratic in the frame's size, and each frame thrice more. It also takes a
    body that ends inside a frame for a clean end; here it is an error.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0

    async def next(self) -> Frame | None:
        """The next frame, None at the end of the body. Raises: TruncatedStreamError, the SDK's checksum and header errors.

        A cancelled call loses nothing: what was read stays.
        """
        if not await self._fill(_PRELUDE.size):
            return None
        length, headers_length = _checked_lengths(b"".join(self._chunks)[: _PRELUDE.size])
        await self._fill(length)
        return _checked_frame(memoryview(self._pop(length)), headers_length)

    async def _fill(self, wanted: int) -> bool:
        """Read until `wanted` bytes are held; False at the end of the body between two frames."""
        while self._buffered_bytes < wanted:
            chunk = await self._content.readany()
            if not chunk and not self._buffered_bytes:
                return False
            if not chunk:
                raise TruncatedStreamError(f"the stream ended inside a frame: {self._buffered_bytes} of {wanted} bytes")
            self._chunks.append(chunk)
            self._buffered_bytes += len(chunk)
        return True

    def _pop(self, length: int) -> bytes:
        """The first `length` bytes. What is behind them came with the last chunk, since nothing is read in advance."""
        *whole, last = self._chunks
        self._buffered_bytes -= length
        end = len(last) - self._buffered_bytes
        self._chunks = [last[end:]]
        return b"".join((*whole, memoryview(last)[:end]))


def _checked_lengths(prelude: bytes) -> tuple[int, int]:
    """The lengths of the frame and of its headers, their own checksum checked before anyone waits for that many bytes."""
    length, headers_length, checksum = _PRELUDE.unpack(prelude)
    _check(prelude[:8], checksum)
    if length < _FRAME_OVERHEAD + headers_length:
        raise InvalidHeadersLength(headers_length)
    if length > _FRAME_OVERHEAD + headers_length + _MAX_PAYLOAD_BYTES:
        raise InvalidPayloadLength(length - _FRAME_OVERHEAD - headers_length)
    return length, headers_length


def _checked_frame(data: memoryview, headers_length: int) -> Frame:
    end, payload_start = len(data) - _CHECKSUM.size, _PRELUDE.size + headers_length
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    _check(data[:end], checksum)
    return Frame(_headers(bytes(data[_PRELUDE.size : payload_start])), data[payload_start:end])


def _check(data: bytes | memoryview, checksum: int) -> None:
    calculated = crc32(data)
    if calculated != checksum:
        raise ChecksumMismatch(checksum, calculated)


@lru_cache(maxsize=64)
def _headers(packed: bytes) -> Mapping[str, Any]:
    """Headers as the SDK parses them; those of all events are the same."""
    headers: dict[str, Any] = EventStreamHeaderParser().parse(packed)
    return headers
