"""A server that sends exactly the bytes that a test has scripted, and a pool of connections to it."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

from recordpublisher.publishers.kinesis.http1 import BodyReadScheduler, Http1ConnectionPool
from recordpublisher.publishers.kinesis.http1_response import BufferedBody

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
READ_BUFFER_BYTES = 4096


class RawServer:
    """Sends the next of `responses` for each request: bytes, or a list of bytes with pauses in between; None closes the connection."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.connections = 0
        self.requests = []
        self.arrived = asyncio.Event()
        self.hung_up = asyncio.Event()
        self._serving = set()

    async def handle(self, reader, writer):
        self.connections += 1
        self._serving.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._respond(reader, writer):
                    pass
            self.hung_up.set()
        finally:
            writer.transport.abort()

    async def stop(self):
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _respond(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        response = self.responses.pop(0) if self.responses else b""
        if response is None:
            return False
        if not isinstance(response, RefusedEarly):
            self.requests.append(head + await reader.readexactly(length))
        self.arrived.set()
        for part in response if isinstance(response, list) else [response]:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if isinstance(response, Last):
            writer.close()  # over TLS it sends close_notify
        return not isinstance(response, Last)


class Last(bytes):
    """The server closes the connection after it."""


class RefusedEarly(Last):
    """A response that is sent before the request was read."""


def ok(body, *headers):
    lines = b"".join(header + b"\r\n" for header in headers or (b"Content-Length: %d" % len(body),))
    return b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n" + body


@asynccontextmanager
async def pool_to(*responses, certificate=None, trusted=None):
    """A server that sends these responses, and a pool."""
    serving = None
    if certificate:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*certificate)
    raw = RawServer(*responses)
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0, ssl=serving)
    url = f"http{'s' if certificate else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    pool = Http1ConnectionPool(url, trusted, 60.0, bytearray(READ_BUFFER_BYTES), BodyReadScheduler())
    async with server:
        try:
            yield raw, pool
        finally:
            await pool.close()
            await raw.stop()


async def until_noticed(pool):
    """Wait until the pool knows that none of its idle connections can be used."""
    async with asyncio.timeout(60):
        while any(connection.is_usable for _, connection in pool._idle):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)


async def content_of(pool, request=REQUEST, **given):
    head, body = await pool.exchange(request, lambda head: BufferedBody(), **given)
    return head.status, body.content
