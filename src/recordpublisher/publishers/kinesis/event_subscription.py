"""EventSubscription: one open SubscribeToShard call, whose events are read and decoded one at a time."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from ..shards import Shard
from .codec.event_stream import Frame, FrameReader
from .codec.response_decoders import decode_error, decode_read, to_read_response
from .error_mapping import HINTS, check_response_size, error_for_code, reject_malformed
from .error_translation import translate_errors
from .ports import ReadResponse
from .read_buffers import limit_read_ahead

API = "SubscribeToShard"


class EventSubscription:
    """Implements the Subscription port. Owns one HTTP response, and reads from its socket only while `__anext__` is awaited (F1).

    The HTTP client alone would read 512 KiB ahead, which is half a gigabyte for a thousand paused shards. A cancelled
    `__anext__` loses nothing: the bytes stay buffered and the next call continues. It is not for concurrent callers.

    `read_buffer` receives the encrypted bytes of all subscriptions of an event loop. Its size limits how much is read
    at once.
    """

    def __init__(self, response: Any, shard: Shard, read_buffer: bytearray) -> None:
        self._response = response
        self._shard = shard
        self._frames = FrameReader(response.content)
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
        """Close the connection; safe to call twice."""
        self._response.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read the socket during the block. Outside the block the connection's buffers fill up, which stops the sender."""
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
        """The transport, or None once the body has ended, and for a response that is not read ahead."""
        connection = self._response.connection
        return None if connection is None else connection.transport

    async def _next_event(self) -> ReadResponse | None:
        """Return the next event, or None at the end of the stream. The size of frames without an event counts for the next event."""
        size = 0
        while (frame := await self._frames.next()) is not None:
            size += len(frame.payload)
            check_response_size(size)
            if (event := self._event_in(frame)) is not None:
                return event
        return None

    def _event_in(self, frame: Frame) -> ReadResponse | None:
        """Return the event in a frame, or None if the frame has none. Raises: the error in a frame, as a class of `errors.py`."""
        headers = frame.headers
        kind = headers.get(":message-type")
        if kind == "exception":
            details = decode_error(frame.payload)
            message = details.get("message") or details.get("Message", "")
            raise error_for_code(API, str(headers.get(":exception-type", "")), message)
        if kind == "error":
            code, message = str(headers.get(":error-code", "")), str(headers.get(":error-message", ""))
            # The API documents no such codes. An unknown code is a failure of the server, which had accepted the
            # subscription.
            raise error_for_code(API, code, message, 0 if code in HINTS else 500)
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None  # the initial response, or an event type for newer clients
        body = decode_read(frame.payload)
        with reject_malformed(API):
            return to_read_response(body, self._shard)
