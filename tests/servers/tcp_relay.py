"""A wire that can be cut: bytes go through to another port until a test says otherwise; over TLS on this side, if asked."""

import asyncio
import ssl
from collections import deque
from contextlib import asynccontextmanager, suppress
from math import inf


class Relay:
    """The port to connect to, and the connections that are open through it."""

    def __init__(self, target, scheme):
        self._target = target
        self._writers = set()
        self._ends = deque()
        self._politely = False
        self.scheme = scheme
        self.port = 0
        self.cuts = 0
        self.ended = 0

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def cut(self):
        """Break every connection at once, on both sides."""
        for writer in self._writers:
            writer.transport.abort()
            self.cuts += 1

    def end_after(self, bytes_each, politely):
        """The first connections that bring so many bytes end there: as TLS asks for (close_notify), or cut."""
        self._ends.extend(bytes_each)
        self._politely = politely

    async def serve(self, reader, writer):
        there, on = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, on}
        try:
            await asyncio.gather(_forth(reader, on), self._back(there, writer))
        finally:
            self._writers -= {writer, on}
            for end in (writer, on):
                end.transport.abort()

    async def _back(self, reader, writer):
        if await _piped(reader, writer, self._ends[0] if self._ends else inf) and self._ends:
            self._ends.popleft()
            self.ended += 1
            if self._politely:
                writer.close()
                with suppress(OSError):  # a TimeoutError is one
                    async with asyncio.timeout(1):
                        await writer.wait_closed()
        writer.transport.abort()


async def _forth(reader, writer):
    await _piped(reader, writer)
    writer.transport.abort()


async def _piped(reader, writer, most=inf):
    """Hand on what comes, `most` bytes of it; whether they were as many."""
    with suppress(ConnectionError):
        while most and (data := await reader.read(min(most, 65536))):
            writer.write(data)
            await writer.drain()
            most -= len(data)
    return not most


@asynccontextmanager
async def relay_to(port, certificate=None):
    """`certificate`: the files of certificate and key, for TLS."""
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
    relay = Relay(port, "https" if tls else "http")
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=tls)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()
        while relay._writers:  # noqa: ASYNC110 - their tasks belong to the server
            await asyncio.sleep(0)
