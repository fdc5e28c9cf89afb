"""A TCP relay to another port, whose connections a test can break; optionally with TLS on the client's side, and with a latency."""

import asyncio
import ssl
from collections import deque
from contextlib import asynccontextmanager, suppress
from math import inf


class TcpRelay:
    """Owns the port to connect to and the connections through it. What the server sends arrives `latency` seconds later."""

    def __init__(self, target, scheme, latency=0.0):
        self._target = target
        self._latency = latency
        self._writers = set()
        self._ends = deque()
        self._with_close_notify = False
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

    def end_after(self, bytes_each, with_close_notify):
        """End each of the next connections after this many bytes of response: by a TLS close_notify, or by an abort."""
        self._ends.extend(bytes_each)
        self._with_close_notify = with_close_notify

    async def serve(self, reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, upstream_writer}
        try:
            await asyncio.gather(_forward(reader, upstream_writer), self._send_back(upstream_reader, writer))
        finally:
            self._writers -= {writer, upstream_writer}
            for end in (writer, upstream_writer):
                end.transport.abort()

    async def _send_back(self, reader, writer):
        if await _copy(reader, writer, self._ends[0] if self._ends else inf, self._latency) and self._ends:
            self._ends.popleft()
            self.ended += 1
            if self._with_close_notify:
                writer.close()
                with suppress(OSError):  # a TimeoutError is one
                    async with asyncio.timeout(1):
                        await writer.wait_closed()
        writer.transport.abort()


async def _forward(reader, writer):
    await _copy(reader, writer)
    writer.transport.abort()


async def _copy(reader, writer, limit=inf, latency=0.0):
    """Copy up to `limit` bytes; returns whether there were that many."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while limit and (data := await reader.read(min(limit, 65536))):
            if latency:
                loop.call_later(latency, writer.write, data)
            else:
                writer.write(data)
                await writer.drain()
            limit -= len(data)
    await asyncio.sleep(latency)
    return not limit


@asynccontextmanager
async def relay_to(port, certificate=None):
    """`certificate`: the files of certificate and key, for TLS."""
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
    relay = TcpRelay(port, "https" if tls else "http")
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
