"""A Kinesis endpoint over real HTTP that sends the responses which a test has scripted, and keeps the requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.properties import Properties


class KinesisStub:
    """Responds by operation, in the scripted order: a dict (200), a function, or a list of chunks for an event stream."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.arrived = asyncio.Event()
        self.url = ""
        self.tls: ssl.SSLContext | None = None
        self._answers: dict[str, deque[Any]] = defaultdict(deque)

    def script(self, operation: str, *responses: Any) -> None:
        self._answers[operation].extend(responses)

    def requests_of(self, operation: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.requests if name == operation]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        self.requests.append((operation, json.loads(await request.read() or b"{}")))
        self.arrived.set()
        self.headers.append(dict(request.headers))
        response = self._answers[operation].popleft()
        if isinstance(response, list):
            return await _stream(request, response)
        return await response(request) if callable(response) else web.json_response(response)


def refusal(code: str, message: str = "", status: int = 400) -> Any:
    """An error response of the service."""

    async def response(request: web.Request) -> web.Response:
        return web.json_response({"__type": code, "message": message}, status=status)

    return response


def raw(body: bytes, status: int = 200) -> Any:
    async def response(request: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return response


async def drop_connection(request: web.Request) -> web.Response:
    request.transport.abort()
    raise ConnectionResetError


async def never(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    raise AssertionError("no client waits that long")


async def _stream(request: web.Request, chunks: list[Any]) -> web.StreamResponse:
    """Send chunks; a callable chunk is called with the request (to wait, or to break the connection)."""
    response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
    await response.prepare(request)
    for chunk in chunks:
        if callable(chunk):
            await chunk(request)
        else:
            await response.write(chunk)
    return response


PROPERTIES = {
    "aws.region": "eu-west-1",
    "aws.credentials.provider.basic.accesskeyid": "AKIDEXAMPLE",
    "aws.credentials.provider.basic.secretkey": "verysecret",
}


@asynccontextmanager
async def stub_and_client(streams: tuple[str, ...] = (), certificate: tuple[str, str] | None = None, **properties: str):
    """A running stub and a client of it; `certificate` are the files of certificate and key, for TLS."""
    stub = KinesisStub()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/", stub.handle)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    if certificate:
        stub.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        stub.tls.load_cert_chain(*certificate)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=stub.tls)
    await site.start()
    port = runner.addresses[0][1]
    stub.url = f"http{'s' if stub.tls else ''}://127.0.0.1:{port}"
    given = Properties(
        {**PROPERTIES, "aws.endpoint": stub.url, **{k.replace("_", "."): v for k, v in properties.items()}}
    )
    try:
        async with KinesisClient(given, streams) as client:
            yield stub, client
    finally:
        await runner.cleanup()
