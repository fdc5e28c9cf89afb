"""A server whose responses have no end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

MIB = 2**20
OK = b"HTTP/1.1 200 OK\r\n"
LONG = b"Content-Length: 99999999\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"


class EndlessServer:
    """Sends the `good` responses to the first requests. Then a head, and the same bytes again and again."""

    def __init__(self, head: bytes, again: bytes, good: Sequence[bytes]) -> None:
        self.good, self.head, self.again = good, head, again
        self.sent = self.requests = 0
        self.url = ""
        self.serving: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._respond(reader, writer)
        finally:
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
        self.requests += 1
        if self.requests <= len(self.good):
            writer.write(self.good[self.requests - 1])
            return
        writer.write(self.head)
        while True:
            writer.write(self.again)
            await writer.drain()
            self.sent += len(self.again)


@asynccontextmanager
async def serve_endless(head: bytes, again: bytes, good: Sequence[bytes] = ()) -> AsyncIterator[EndlessServer]:
    """The server, at its `url`."""
    endless = EndlessServer(head, again, good)
    server = await asyncio.start_server(endless.handle, "127.0.0.1", 0)
    endless.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield endless
        for task in endless.serving:
            task.cancel()
        await asyncio.gather(*endless.serving, return_exceptions=True)
