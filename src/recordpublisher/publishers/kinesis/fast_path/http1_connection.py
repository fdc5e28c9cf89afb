"""Http1Connection: one HTTP/1.1 connection, with one request and response at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..error_mapping import MalformedResponseError, check_response_size
from ..read_buffers import share_read_buffer
from .body_read_scheduler import BodyReadScheduler
from .http1_response import BodyReader, ChunkedDecoder, ResponseHead, parse_response_head

_MAX_HEAD_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_WRITE_BYTES = 256 * 1024  # the loop runs between two pieces of a large request (F1)
ReaderFactory = Callable[[ResponseHead], BodyReader]


class Http1Connection(asyncio.BufferedProtocol):
    """Owns a socket and the response that is being received. All work is done in callbacks, so there is no task to leak.

    The kernel writes into `read_buffer`, which all connections of a loop share. Each connection consumes its bytes
    before another one reads, and copies the rest aside. So bytes are parsed while they are in the CPU's caches, and
    many responses at once need no memory.
    """

    def __init__(self, read_buffer: bytearray, scheduler: BodyReadScheduler) -> None:
        self._scheduler = scheduler
        self._read_buffer = read_buffer
        self._buffer = read_buffer
        self._leftover = b""
        self._filled = 0
        self._transport: Any = None
        self._closed = asyncio.get_running_loop().create_future()
        self._drained = asyncio.Event()
        self._drained.set()
        self._response: asyncio.Future[tuple[ResponseHead, BodyReader]] | None = None
        self._reader_for: ReaderFactory | None = None
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        self._chunks: ChunkedDecoder | None = None
        self._left: int | None = None
        self._received = self._head_bytes = 0

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._closed.done() and not self._transport.is_closing() and self._response is None

    @property
    def has_received_nothing(self) -> bool:
        """Whether no byte of a response has arrived since the last request."""
        return self._head is None and not self._filled

    async def exchange(self, request: bytes, reader_for: ReaderFactory) -> tuple[ResponseHead, BodyReader]:
        """Send a request; return the head and body of the response. `reader_for` chooses the reader of the body by the head.

        Any error or cancellation closes the connection.

        Raises: ConnectionResetError if the connection is closed, MalformedResponseError if the response is not valid
        HTTP, the errors of the reader.
        """
        self._response = response = asyncio.get_running_loop().create_future()
        self._reader_for, self._head, self._reader, self._chunks, self._left = reader_for, None, None, None, None
        self._received = self._head_bytes = 0
        try:
            await self._send(request, response)
            head, reader = await response
        except BaseException:
            self.abort()
            raise
        finally:
            self._response = self._reader_for = self._reader = None
            self._scheduler.finish(self)
        if not head.keeps_alive or self._filled or self._transport.get_write_buffer_size():
            self.abort()
        return head, reader

    async def _send(self, request: bytes, response: asyncio.Future[tuple[ResponseHead, BodyReader]]) -> None:
        if self._closed.done() or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed before the request")
        for start in range(0, len(request), _WRITE_BYTES):
            await self._drained.wait()
            if (
                response.done()
            ):  # before the request was sent whole: the server would take the next request for the rest of it
                self.abort()
                return
            self._transport.write(request[start : start + _WRITE_BYTES])

    def abort(self) -> None:
        """Close the connection; a request in flight fails."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.wait([self._closed])

    # --- asyncio's protocol -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Store the transport of the open socket."""
        self._transport = transport
        # Sharing is safe, because asyncio copies decrypted bytes out before it writes into the buffer again.
        share_read_buffer(transport, self._read_buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes, after the bytes that are not consumed yet."""
        if self._buffer is self._read_buffer:
            self._read_buffer[: self._filled] = self._leftover
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Consume the received bytes."""
        filled = self._filled + nbytes
        self._received += nbytes
        try:
            check_response_size(self._received)
            consumed = self._consume(filled)
        except Exception as error:
            self._fail(error)
            self.abort()
        else:
            self._set_aside(consumed, filled)
            if self._reader is not None and 2 * nbytes > len(self._read_buffer):
                self._scheduler.wait_turn(self)

    def eof_received(self) -> None:
        """End a body of unknown length, because the server closed its side."""
        head, reader = self._head, self._reader
        if head is None or reader is None or head.length is not None or head.is_chunked:
            return
        buffer = (
            memoryview(bytearray(self._leftover)) if self._buffer is self._read_buffer else memoryview(self._buffer)
        )
        try:
            reader.feed(buffer[: self._filled], True)
            self._leftover, self._filled = b"", 0  # needed because TLS calls get_buffer once more
            self._done(head, reader)
        except Exception as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        self._fail(ConnectionResetError(str(exc or "closed by the server")))
        self._closed.set_result(None)

    # --- for the scheduler and for writing ----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading; the kernel buffers the bytes that arrive."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Start reading again."""
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop sending, because the send buffer is full."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """Send again, because the send buffer has room."""
        self._drained.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _consume(self, filled: int) -> int:
        """Consume the complete parts of the buffer's first `filled` bytes; return their number of bytes."""
        if self._response is None or self._response.done():
            raise MalformedResponseError("bytes without a request")
        at = 0
        while self._head is None:
            end = self._buffer.find(_HEAD_END, at, filled)
            if end < 0:
                if filled - at > _MAX_HEAD_BYTES:
                    raise MalformedResponseError("a head without an end")
                return at
            self._head_bytes += end - at
            if self._head_bytes > _MAX_HEAD_BYTES:
                raise MalformedResponseError("too many heads before the response")
            self._begin_body(parse_response_head(bytes(memoryview(self._buffer)[at:end])))
            at = end + len(_HEAD_END)
        return at + self._consume_body(self._head, memoryview(self._buffer)[at:filled])

    def _begin_body(self, head: ResponseHead) -> None:
        if head.is_interim or self._reader_for is None:
            return
        self._head, self._reader = head, self._reader_for(head)
        self._left = head.length
        check_response_size(head.length or 0)
        self._chunks = ChunkedDecoder() if head.is_chunked else None

    def _consume_body(self, head: ResponseHead, data: memoryview) -> int:
        reader = self._reader
        if reader is None:
            return 0  # bytes after the response, at which `exchange` closes the connection
        if self._chunks is not None:
            consumed = self._chunks.feed(bytes(data))
            if self._chunks.is_done:
                reader.feed(memoryview(self._chunks.content), True)
                self._done(head, reader)
            return consumed
        if self._left is None:
            return reader.feed(data, False)
        consumed = reader.feed(data[: self._left], len(data) >= self._left)
        self._left -= consumed
        if self._left == 0:
            self._done(head, reader)
        return consumed

    def _set_aside(self, consumed: int, filled: int) -> None:
        """Keep the bytes that were not consumed: a few in `_leftover`, more in a growing buffer of the connection's own."""
        self._filled = filled - consumed
        if self._filled <= len(self._read_buffer) // 2:
            self._leftover = bytes(memoryview(self._buffer)[consumed:filled])
            self._buffer = self._read_buffer
        elif consumed or filled == len(self._buffer) or self._buffer is self._read_buffer:
            buffer = bytearray(2 * max(self._filled, len(self._read_buffer)))
            buffer[: self._filled] = memoryview(self._buffer)[consumed:filled]
            self._buffer = buffer

    def _done(self, head: ResponseHead, reader: BodyReader) -> None:
        self._reader = None
        self._scheduler.finish(self)
        self._drained.set()
        if self._response is not None and not self._response.done():
            self._response.set_result((head, reader))

    def _fail(self, error: Exception) -> None:
        self._drained.set()
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
