"""FrameReader: splits an event stream into frames, with their checksums verified."""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from botocore.eventstream import ChecksumMismatch, EventStreamHeaderParser, InvalidHeadersLength, InvalidPayloadLength

from ..error_mapping import MalformedResponseError, TruncatedStreamError

_PRELUDE = struct.Struct("!III")  # length of the frame, length of its headers, checksum of these two
_CHECKSUM = struct.Struct("!I")
_FRAME_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
_MAX_PAYLOAD_BYTES = 24 * 2**20  # as in the SDK
_MAX_HEADERS_BYTES = 128 * 2**10  # as in the SDK


class Frame(NamedTuple):
    """One frame; `payload` is a view of its bytes, not a copy."""

    headers: Mapping[str, Any]
    payload: memoryview


class FrameReader:
    """Owns the bytes that were read but not yet returned: at most one read of the socket beyond a frame's end (F1).

    The SDK's buffer copies everything at each chunk, which is quadratic in the frame's size. It also treats a body that ends inside a
    frame as a clean end; here it is an error.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0

    async def next(self) -> Frame | None:
        """The next frame, None at the end of the body. Raises: TruncatedStreamError, the SDK's checksum and header errors.

        A cancelled call loses nothing: the bytes stay buffered.
        """
        if not await self._fill(_PRELUDE.size):
            return None
        length, headers_length = _parse_prelude(b"".join(self._chunks)[: _PRELUDE.size])
        await self._fill(length)
        return _parse_frame(memoryview(self._pop(length)), headers_length)

    async def _fill(self, wanted: int) -> bool:
        """Read until `wanted` bytes are buffered. Return False at the end of the body, between two frames."""
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
        """Remove and return the first `length` bytes. Bytes after them are in the last chunk, since nothing is read in advance."""
        *whole, last = self._chunks
        self._buffered_bytes -= length
        end = len(last) - self._buffered_bytes
        self._chunks = [last[end:]]
        return b"".join((*whole, memoryview(last)[:end]))


def _parse_prelude(prelude: bytes) -> tuple[int, int]:
    """The lengths of the frame and of its headers. Their own checksum is verified before that many bytes are awaited."""
    length, headers_length, checksum = _PRELUDE.unpack(prelude)
    _verify_checksum(prelude[:8], checksum)
    if headers_length > _MAX_HEADERS_BYTES or length < _FRAME_OVERHEAD + headers_length:
        raise InvalidHeadersLength(headers_length)
    if length > _FRAME_OVERHEAD + headers_length + _MAX_PAYLOAD_BYTES:
        raise InvalidPayloadLength(length - _FRAME_OVERHEAD - headers_length)
    return length, headers_length


def _parse_frame(data: memoryview, headers_length: int) -> Frame:
    end, payload_start = len(data) - _CHECKSUM.size, _PRELUDE.size + headers_length
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    _verify_checksum(data[:end], checksum)
    return Frame(_headers(bytes(data[_PRELUDE.size : payload_start])), data[payload_start:end])


def _verify_checksum(data: bytes | memoryview, checksum: int) -> None:
    computed = crc32(data)
    if computed != checksum:
        raise ChecksumMismatch(checksum, computed)


_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The length of a header's value by its type: true, false, the integers, timestamp, UUID."""
_SIZED_TYPES = (6, 7)
"""Bytes and text begin with two bytes for their length."""


@lru_cache(maxsize=64)
def _headers(packed: bytes) -> Mapping[str, Any]:
    """Headers as the SDK parses them; those of all events are the same. Raises: MalformedResponseError, the SDK's header errors."""
    try:
        _verify_complete(packed)
        headers: dict[str, Any] = EventStreamHeaderParser().parse(packed)
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise MalformedResponseError(f"the headers of a frame are cut or of an unknown type: {error!r}") from error
    return headers


def _verify_complete(packed: bytes) -> None:
    """The SDK takes what is left of a value that is cut. Raises: ValueError, IndexError, KeyError."""
    at = 0
    while at < len(packed):
        at += 1 + packed[at]
        kind = packed[at]
        if kind in _SIZED_TYPES:
            at += 3 + int.from_bytes(packed[at + 1 : at + 3], "big")
        else:
            at += 1 + _VALUE_BYTES[kind]
    if at != len(packed):
        raise ValueError(f"{len(packed)} of {at} bytes")
