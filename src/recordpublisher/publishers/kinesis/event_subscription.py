"""EventSubscription: one open SubscribeToShard call. Its events are read and decoded one at a time."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from botocore.eventstream import ChecksumMismatch, EventStreamHeaderParser, InvalidHeadersLength, InvalidPayloadLength

from ..shards import Shard
from .codec import decode_error, decode_read, to_read_response
from .error_mapping import (
    HINTS,
    MalformedResponseError,
    TruncatedStreamError,
    check_response_size,
    error_for_code,
    reject_malformed,
    translate_errors,
)
from .http1 import limit_read_ahead
from .ports import ReadResponse

API = "SubscribeToShard"


class EventSubscription:
    """One open subscription (the Subscription port). It reads from its socket only while `__anext__` is awaited.

    Only one caller may await `__anext__` at a time. If the wait is cancelled, nothing is lost: the bytes stay buffered, and the next call
    continues.

    - `read_buffer`: receives the encrypted bytes of all subscriptions of an event loop. Its size limits how much is read at once.
    """

    def __init__(self, response: Any, shard: Shard, read_buffer: bytearray) -> None:
        self._response = response
        self._shard = shard
        self._frames = FrameReader(response.content)
        # Without this limit the HTTP client would read 512 KiB ahead, which is half a gigabyte for a thousand paused shards.
        if (transport := self._transport) is not None:
            limit_read_ahead(transport, read_buffer)
        self._stop_reading()

    def __aiter__(self) -> AsyncIterator[ReadResponse]:
        return self

    async def __anext__(self) -> ReadResponse:
        with translate_errors(API), self._reading():
            event = await self._next_event()
        if event is None:
            await self.close()
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._response.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read from the socket during the `with` block. Outside the block the connection's buffers fill up, and the sender stops."""
        if (transport := self._transport) is not None:
            transport.resume_reading()
        try:
            yield
        finally:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if (transport := self._transport) is not None:
            transport.pause_reading()

    @property
    def _transport(self) -> Any:
        """The transport of the socket. It is None after the end of the body, and for HTTP/2, which stops the sender itself."""
        connection = self._response.connection
        return None if connection is None else connection.transport

    async def _next_event(self) -> ReadResponse | None:
        # Bytes of frames without an event count towards the next event, so that no server can send such frames without end.
        size = 0
        while (frame := await self._frames.next()) is not None:
            size += len(frame.payload)
            check_response_size(size)
            if (event := self._event_in(frame)) is not None:
                return event
        return None

    def _event_in(self, frame: Frame) -> ReadResponse | None:
        """Return the event in a frame, or None if the frame has no event.

        Raises: an error of `errors.py` if the frame contains an error.
        """
        headers = frame.headers
        kind = headers.get(":message-type")
        if kind == "exception":
            details = decode_error(frame.payload)
            message = details.get("message") or details.get("Message", "")
            raise error_for_code(API, str(headers.get(":exception-type", "")), message)
        if kind == "error":
            code, message = str(headers.get(":error-code", "")), str(headers.get(":error-message", ""))
            # The API documents no error codes for frames. An unknown code counts as a failure of the server, because it had accepted the
            # subscription.
            raise error_for_code(API, code, message, 0 if code in HINTS else 500)
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None  # This is the initial response, or a type of event for newer clients.
        body = decode_read(frame.payload)
        with reject_malformed(API):
            return to_read_response(body, self._shard)


# --- frames -------------------------------------------------------------------------------------------------------------------------

_PRELUDE = struct.Struct(
    "!III"
)  # These are the length of the frame, the length of its headers, and the checksum of both.
_CHECKSUM = struct.Struct("!I")
_FRAME_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
_MAX_PAYLOAD_BYTES = 24 * 2**20  # The SDK has the same limit.
_MAX_HEADERS_BYTES = 128 * 2**10  # The SDK has the same limit.
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The length of a header's value (bytes), by the type of the value: true, false, the integers, timestamp, UUID."""
_SIZED_TYPES = (6, 7)
"""The types of header values that are bytes or text. Such a value begins with its length, in two bytes."""


class FrameReader:
    """Splits the bytes of an event stream into frames. Beyond the end of a frame, it buffers at most one read of the socket."""

    # The SDK's own buffer is not used for two reasons. It copies everything at each chunk, which is quadratic in the frame's size. And it
    # takes a body that ends inside a frame for a complete one, which here is an error.

    def __init__(self, content: Any) -> None:
        self._content = content
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end of the body. If the call is cancelled, the bytes stay buffered for the next call.

        Raises:

        - TruncatedStreamError if the body ends inside a frame.
        - MalformedResponseError if a header is incomplete or of an unknown type.
        - The SDK's errors if a checksum or a length is wrong.
        """
        if not await self._fill(_PRELUDE.size):
            return None
        length, headers_length = _parse_prelude(b"".join(self._chunks)[: _PRELUDE.size])
        await self._fill(length)
        return _parse_frame(memoryview(self._pop(length)), headers_length)

    async def _fill(self, wanted: int) -> bool:
        """Read until `wanted` bytes are buffered. Return False if the body has ended between two frames.

        Raises: TruncatedStreamError if the body ends inside a frame.
        """
        while self._buffered_bytes < wanted:
            chunk = await self._content.readany()
            if not chunk and not self._buffered_bytes:
                return False
            if not chunk:
                raise TruncatedStreamError(
                    f"the response of SubscribeToShard broke off inside a frame: {self._buffered_bytes} of {wanted} bytes"
                )
            self._chunks.append(chunk)
            self._buffered_bytes += len(chunk)
        return True

    def _pop(self, length: int) -> bytes:
        """Remove the first `length` bytes from the buffer, and return them."""
        # Only the last chunk can have bytes after these, because `_fill` stops as soon as there are enough.
        *whole, last = self._chunks
        self._buffered_bytes -= length
        end = len(last) - self._buffered_bytes
        self._chunks = [last[end:]]
        return b"".join((*whole, memoryview(last)[:end]))


class Frame(NamedTuple):
    """One frame. `payload` is a view of its bytes, not a copy."""

    headers: Mapping[str, Any]
    payload: memoryview


def _parse_prelude(prelude: bytes) -> tuple[int, int]:
    """Return the length of a frame, and the length of its headers (bytes), from the frame's first bytes.

    Their checksum is verified first, because the lengths decide how many bytes are awaited.
    """
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


@lru_cache(maxsize=64)  # Cached, because all events have the same headers.
def _headers(packed: bytes) -> Mapping[str, Any]:
    """Return the headers of a frame, as the SDK parses them.

    Raises: MalformedResponseError if a header is incomplete or of an unknown type; the SDK's header errors.
    """
    try:
        _verify_complete(packed)
        headers: dict[str, Any] = EventStreamHeaderParser().parse(packed)
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise MalformedResponseError(f"the headers of a frame are cut or of an unknown type: {error!r}") from error
    return headers


def _verify_complete(packed: bytes) -> None:
    """Check that no header of a frame is incomplete.

    Raises: ValueError or IndexError if a header is incomplete; KeyError if its type is unknown.
    """
    # If a value is cut, the SDK would return the cut value without an error.
    at = 0
    while at < len(packed):
        at += 1 + packed[at]
        kind = packed[at]
        if kind in _SIZED_TYPES:
            at += 3 + int.from_bytes(packed[at + 1 : at + 3], "big")
        else:
            at += 1 + _VALUE_BYTES[kind]
    if at != len(packed):
        raise ValueError(f"only {len(packed)} of {at} bytes of the headers have arrived")
