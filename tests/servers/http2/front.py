"""An HTTP/2 proxy before the embedded endpoint, as a load balancer would be: hypercorn, and a proxy that forwards bytes as they arrive."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
from hypercorn.asyncio import serve
from hypercorn.config import Config


class Front:
    """The URL of the proxy, its connections by the client's port, and the open streams of each."""

    def __init__(self, backend, scheme="http"):
        self._backend = backend
        self.scheme = scheme
        self.port = 0
        self.versions = set()
        self.clients = []
        self.open = 0

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        self.versions.add(scope["http_version"])
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name != b"content-length"}
        if headers["x-amz-target"].endswith("SubscribeToShard"):
            self.clients.append(scope["client"][1])
        self.open += 1
        try:
            await self._forward(headers, receive, send)
        finally:
            self.open -= 1

    async def _forward(self, headers, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        gone = asyncio.create_task(receive())
        answering = asyncio.create_task(self._respond(headers, body, send))
        try:
            await asyncio.wait([gone, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answering.cancel()
            await asyncio.gather(gone, answering, return_exceptions=True)

    async def _respond(self, headers, body, send):
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(), auto_decompress=False) as session,
            session.post(self._backend, data=body, headers=headers) as answer,
        ):
            kept = [(n.lower().encode(), v.encode()) for n, v in answer.headers.items() if n.lower() not in HOP]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


@asynccontextmanager
async def front_of(backend, streams=100, certificate=None):
    """Serve while the block runs; `certificate` are the files of certificate and key, for TLS."""
    front = Front(backend, "https" if certificate else "http")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        front.port = listening.getsockname()[1]
        config = Config()
        config.bind = [f"fd://{listening.detach()}"]
        config.h2_max_concurrent_streams = streams
        config.keep_alive_timeout = config.ssl_handshake_timeout = 1e6
        config.graceful_timeout = config.shutdown_timeout = 10.0
        config.errorlog = None
        if certificate:
            config.certfile, config.keyfile = certificate
        stop = asyncio.Event()
        task = asyncio.create_task(serve(front, config, shutdown_trigger=stop.wait))
        try:
            yield front
        finally:
            for _ in range(50):  # what the clients closed is noticed before the front itself is stopped
                await asyncio.sleep(0)
            stop.set()
            await asyncio.gather(task)
