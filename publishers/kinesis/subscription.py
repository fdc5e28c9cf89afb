"""One open SubscribeToShard call: frames from the socket, one at a time, decoded into answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from botocore.eventstream import EventStreamBuffer, EventStreamMessage

from ..shards import Shard
from ..wire import ReadAnswer
from .decoding import decode_read, to_answer
from .translation import TruncatedStreamError, error_for_code, translated

API = "SubscribeToShard"
_PRELUDE_BYTES = 12
_SMALLEST_FRAME = 16


class EventSubscription:
    """The Subscription port. Owns one HTTP response; reads from it only while `__anext__` is awaited (F1).

    A cancelled `__anext__` loses nothing: bytes stay buffered and the next call goes on. Not for concurrent callers.
    """

    def __init__(self, response: Any, shard: Shard) -> None:
        self._response = response
        self._shard = shard
        self._frames = _FrameReader(response.content)

    def __aiter__(self) -> AsyncIterator[ReadAnswer]:
        return self

    async def __anext__(self) -> ReadAnswer:
        with translated(API):
            answer = await self._next_answer()
        if answer is None:
            await self.close()
            raise StopAsyncIteration
        return answer

    async def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._response.close()

    async def _next_answer(self) -> ReadAnswer | None:
        """The next event, None at the end of the stream."""
        while (frame := await self._frames.next()) is not None:
            if (answer := self._answer(frame)) is not None:
                return answer
        return None

    def _answer(self, frame: EventStreamMessage) -> ReadAnswer | None:
        """The event in a frame, None for frames without one. Raises: the error that a frame carries, translated."""
        headers = frame.headers
        kind = headers.get(":message-type")
        if kind == "exception":
            raise error_for_code(API, headers.get(":exception-type", ""), _message(frame.payload))
        if kind == "error":
            raise error_for_code(API, headers.get(":error-code", ""), headers.get(":error-message", ""))
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None  # the initial response; others are for newer clients
        return to_answer(decode_read(frame.payload), self._shard)


class _FrameReader:
    """Whole, checked frames from a byte stream.

    Chunks are joined only when a frame is complete: the SDK's buffer copies everything it holds at each chunk, which is quadratic in
    the frame's size. The SDK also takes a body that ends inside a frame for a clean end; here it is an error.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self._chunks: list[bytes] = []
        self._held = 0

    async def next(self) -> EventStreamMessage | None:
        """The next frame, None at the end of the body. Raises: TruncatedStreamError, the SDK's checksum and header errors."""
        if not await self._hold(_PRELUDE_BYTES):
            return None
        length = _checked_length(self._joined())
        await self._hold(length)
        data = self._joined()
        self._chunks, self._held = [data[length:]], self._held - length
        return _parsed(data[:length])

    async def _hold(self, wanted: int) -> bool:
        """Read until `wanted` bytes are held; False at the end of the body between two frames."""
        while self._held < wanted:
            chunk = await self._content.readany()
            if not chunk and not self._held:
                return False
            if not chunk:
                raise TruncatedStreamError(f"the stream ended inside a frame: {self._held} of {wanted} bytes")
            self._chunks.append(chunk)
            self._held += len(chunk)
        return True

    def _joined(self) -> bytes:
        self._chunks = [b"".join(self._chunks)]
        return self._chunks[0]


def _checked_length(data: bytes) -> int:
    """The length of the frame that begins `data`, its own checksum checked before anyone waits for that many bytes."""
    buffer = EventStreamBuffer()
    buffer.add_data(data[:_PRELUDE_BYTES])
    next(buffer, None)
    return max(int.from_bytes(data[:4], "big"), _SMALLEST_FRAME)


def _parsed(data: bytes) -> EventStreamMessage:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return next(buffer)


def _message(payload: bytes) -> str:
    try:
        body = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload.decode(errors="replace")
    return str(body.get("message") or body.get("Message") or "") if isinstance(body, dict) else str(body)
