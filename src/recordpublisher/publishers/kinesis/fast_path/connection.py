"""One connection that carries one request and its answer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..error_mapping import BrokenAnswerError
from ..tls import lend_block
from .read_scheduler import Turns
from .response import BodyReader, Dechunker, Head, parse_head

_LONGEST_HEAD = 64 * 1024
_HEAD_ENDS = b"\r\n\r\n"
_PIECE = 256 * 1024  # the loop runs between two pieces of a large request (F1)
Readers = Callable[[Head], BodyReader]


class Http1Connection(asyncio.BufferedProtocol):
    """Owns a socket and the answer under way. Everything but waiting happens in callbacks: there is no task to leak.

    The kernel writes into `desk`, one block for all connections of a loop: what came is taken off it before anybody else reads, and what
    could not be taken yet is kept aside. So bytes are read while the caches hold them, and a wave of answers needs no memory.
    """

    def __init__(self, desk: bytearray, turns: Turns) -> None:
        self._turns = turns
        self._desk = desk
        self._block = desk
        self._kept = b""
        self._filled = 0
        self._transport: Any = None
        self._closed = asyncio.get_running_loop().create_future()
        self._drained = asyncio.Event()
        self._drained.set()
        self._answer: asyncio.Future[tuple[Head, BodyReader]] | None = None
        self._readers: Readers | None = None
        self._head: Head | None = None
        self._reader: BodyReader | None = None
        self._chunks: Dechunker | None = None
        self._left: int | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._closed.done() and not self._transport.is_closing() and self._answer is None

    @property
    def has_said_nothing(self) -> bool:
        """Whether not one byte of an answer has come since the last request."""
        return self._head is None and not self._filled

    async def exchange(self, request: bytes, readers: Readers) -> tuple[Head, BodyReader]:
        """Send a request; head and body of the answer, the body with the reader that `readers` chose for the head.

        Raises: ConnectionResetError, BrokenAnswerError, what the reader raises; the connection is closed then, as it is by a cancellation.
        """
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._readers, self._head, self._reader, self._chunks, self._left = readers, None, None, None, None
        try:
            await self._send(request, answer)
            head, reader = await answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = self._readers = self._reader = None
            self._turns.leave(self)
        if not head.stays_open or self._filled or self._transport.get_write_buffer_size():
            self.abort()
        return head, reader

    async def _send(self, request: bytes, answer: asyncio.Future[tuple[Head, BodyReader]]) -> None:
        if self._closed.done() or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed before the request")
        for start in range(0, len(request), _PIECE):
            await self._drained.wait()
            if answer.done():  # refused, or lost, before it was all sent: the server would take the next request for the rest of this one
                self.abort()
                return
            self._transport.write(request[start : start + _PIECE])

    def abort(self) -> None:
        """Close the connection; what was under way is lost."""
        self._transport.abort()

    async def closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.wait([self._closed])

    # --- asyncio's protocol -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """The socket is open."""
        self._transport = transport
        lend_block(transport, self._desk)  # what is written to it is copied off before the desk's turn to be written to

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the kernel is to write: behind what was not taken yet."""
        if self._block is self._desk:
            self._desk[: self._filled] = self._kept
        return memoryview(self._block)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came."""
        filled = self._filled + nbytes
        try:
            taken = self._take(filled)
        except Exception as error:
            self._lose(error)
            self.abort()
        else:
            self._keep(taken, filled)
            if self._reader is not None and 2 * nbytes > len(self._desk):
                self._turns.more_to_come(self)

    def eof_received(self) -> None:
        """The server is done: the end of a body that has no other."""
        head, reader = self._head, self._reader
        if head is None or reader is None or head.length is not None or head.is_chunked:
            return
        block = memoryview(bytearray(self._kept)) if self._block is self._desk else memoryview(self._block)
        try:
            reader.take(block[: self._filled], True)
            self._kept, self._filled = b"", 0  # TLS asks for a buffer once more
            self._done(head, reader)
        except Exception as error:
            self._lose(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        self._lose(ConnectionResetError(str(exc or "closed by the server")))
        self._closed.set_result(None)

    # --- for its turn -------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Leave what comes to the kernel's buffers."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The server does not keep up."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """What was written is on its way."""
        self._drained.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _take(self, filled: int) -> int:
        """Take what can be understood of the block's first `filled` bytes; the answer is how many bytes that were."""
        if self._answer is None or self._answer.done():
            raise BrokenAnswerError("bytes that nobody asked for")
        at = 0
        while self._head is None:
            end = self._block.find(_HEAD_ENDS, at, filled)
            if end < 0:
                if filled - at > _LONGEST_HEAD:
                    raise BrokenAnswerError("a head without an end")
                return at
            self._begin(parse_head(bytes(memoryview(self._block)[at:end])))
            at = end + len(_HEAD_ENDS)
        return at + self._take_body(self._head, memoryview(self._block)[at:filled])

    def _begin(self, head: Head) -> None:
        if head.is_interim or self._readers is None:
            return
        self._head, self._reader = head, self._readers(head)
        self._left = head.length
        self._chunks = Dechunker() if head.is_chunked else None

    def _take_body(self, head: Head, data: memoryview) -> int:
        reader = self._reader
        if reader is None:
            return 0  # behind the answer: too much, which `exchange` sees
        if self._chunks is not None:
            taken = self._chunks.take(bytes(data))
            if self._chunks.is_done:
                reader.take(memoryview(self._chunks.content), True)
                self._done(head, reader)
            return taken
        if self._left is None:
            return reader.take(data, False)
        taken = reader.take(data[: self._left], len(data) >= self._left)
        self._left -= taken
        if self._left == 0:
            self._done(head, reader)
        return taken

    def _keep(self, taken: int, filled: int) -> None:
        """Put aside what was not taken: a little beside the desk, more in a block of its own that grows."""
        self._filled = filled - taken
        if self._filled <= len(self._desk) // 2:
            self._kept = bytes(memoryview(self._block)[taken:filled])
            self._block = self._desk
        elif taken or filled == len(self._block) or self._block is self._desk:
            block = bytearray(2 * max(self._filled, len(self._desk)))
            block[: self._filled] = memoryview(self._block)[taken:filled]
            self._block = block

    def _done(self, head: Head, reader: BodyReader) -> None:
        self._reader = None
        self._turns.leave(self)
        self._drained.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((head, reader))

    def _lose(self, error: Exception) -> None:
        self._drained.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
