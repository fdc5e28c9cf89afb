"""A wire that can be cut: bytes go through to another port until a test says otherwise."""

import asyncio
from contextlib import asynccontextmanager


class Relay:
    """The port to connect to, and the connections that are open through it."""

    def __init__(self, target):
        self._target = target
        self._writers = set()
        self.port = 0
        self.cuts = 0

    def cut(self):
        """Break every connection at once, on both sides."""
        for writer in self._writers:
            writer.transport.abort()
            self.cuts += 1

    async def serve(self, reader, writer):
        there, on = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, on}
        try:
            await asyncio.gather(_pipe(reader, on), _pipe(there, writer))
        finally:
            self._writers -= {writer, on}
            for end in (writer, on):
                end.transport.abort()


async def _pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def relay_to(port):
    relay = Relay(port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()
        while relay._writers:  # noqa: ASYNC110 - their tasks belong to the server
            await asyncio.sleep(0)
