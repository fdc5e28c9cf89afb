"""FrameReader splits an event stream into frames, and verifies their checksums."""

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
_MAX_PAYLOAD_BYTES = 24 * 2**20  # the SDK has the same limit
_MAX_HEADERS_BYTES = 128 * 2**10  # the SDK has the same limit


class Frame(NamedTuple):
    """One frame; `payload` is a view of its bytes, not a copy."""

    headers: Mapping[str, Any]
    payload: memoryview


class FrameReader:
    """Owns the bytes that were read but not yet returned: at most one read of the socket beyond a frame's end (F1).

    The SDK's buffer copies everything at each chunk, which is quadratic in the frame's size. It also treats a body that
    ends inside a frame as a clean end. Here that is an error.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end of the body. A cancelled call loses nothing: the bytes stay buffered.

        Raises: TruncatedStreamError if the body ends inside a frame; the SDK's errors if a checksum or a length is
        wrong; MalformedResponseError if the headers are cut or of an unknown type.
        """
        if not await self._fill(_PRELUDE.size):
            return None
        length, headers_length = _parse_prelude(b"".join(self._chunks)[: _PRELUDE.size])
        await self._fill(length)
        return _parse_frame(memoryview(self._pop(length)), headers_length)

    async def _fill(self, wanted: int) -> bool:
        """Read until `wanted` bytes are buffered. Return False at the end of the body, between two frames.

        Raises: TruncatedStreamError if the body ends before.
        """
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
        """Remove and return the first `length` bytes. Bytes after them are in the last chunk, because nothing is read in advance."""
        *whole, last = self._chunks
        self._buffered_bytes -= length
        end = len(last) - self._buffered_bytes
        self._chunks = [last[end:]]
        return b"".join((*whole, memoryview(last)[:end]))


def _parse_prelude(prelude: bytes) -> tuple[int, int]:
    """Return the lengths of the frame and of its headers. Their own checksum is verified before this many bytes are awaited."""
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
"""The types bytes and text, whose values begin with two bytes for their length."""


@lru_cache(maxsize=64)
def _headers(packed: bytes) -> Mapping[str, Any]:
    """Return headers as the SDK parses them. They are cached, because all events have the same headers.

    Raises: MalformedResponseError if the headers are cut or of an unknown type; the SDK's header errors.
    """
    try:
        _verify_complete(packed)
        headers: dict[str, Any] = EventStreamHeaderParser().parse(packed)
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise MalformedResponseError(f"the headers of a frame are cut or of an unknown type: {error!r}") from error
    return headers


def _verify_complete(packed: bytes) -> None:
    """Check that no header is cut, because the SDK would take the rest of a cut value as the value.

    Raises: ValueError or IndexError if a header is cut, KeyError if its type is unknown.
    """
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
