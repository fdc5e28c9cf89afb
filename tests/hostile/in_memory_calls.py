"""Calls of the real client over connections in memory: the server's bytes are given, nothing is sent."""

from __future__ import annotations

import asyncio
from functools import cache
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import ServiceModel

from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.credentials_without_sdk import Keys
from recordpublisher.publishers.kinesis.direct_transport import FastPathCalls, SignedPost
from recordpublisher.publishers.kinesis.error_mapping import translate_errors
from recordpublisher.publishers.kinesis.event_subscription import EventSubscription
from recordpublisher.publishers.kinesis.http1 import BodyReadScheduler, Http1Connection
from recordpublisher.publishers.kinesis.http2 import Http2Connection, Http2Settings
from recordpublisher.publishers.kinesis.sdk.private_parts import RecordParser
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from .answers import REQUEST

SHARD = Shard("orders", "shardId-000000000000")
PROPERTIES = Properties({"aws.region": "eu-west-1"})
READ_BUFFER_BYTES = 256
HEADERS = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "Kinesis_20131202.GetRecords"}


def _split(sent: bytes, pieces: int) -> list[bytes]:
    """The last one first."""
    size = len(sent) // pieces + 1
    return [sent[at : at + size] for at in range(0, len(sent), size)][::-1]


class MemoryConnection:
    """The transport of a protocol: once a request is written, the response is received in pieces, and then the end."""

    def __init__(self, protocol: Any, response: bytes, pieces: int) -> None:
        self._protocol = protocol
        self._pieces = _split(response, pieces)
        self._is_closing = self._is_paused = self._has_begun = False
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._receive)

    def _receive(self) -> None:
        while self._pieces and not self._is_closing and not self._is_paused:
            self._deliver(self._pieces.pop())
        if not self._is_closing and not self._is_paused:
            if hasattr(self._protocol, "eof_received"):
                self._protocol.eof_received()
            self.abort()

    def _deliver(self, data: bytes) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = self._protocol.get_buffer(-1)
            now, rest = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(now)] = now
            self._pieces += [rest] if rest else []
            self._protocol.buffer_updated(len(now))
        else:
            self._protocol.data_received(data)

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._receive)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None


class FastPathTransport:
    """The client's transport: each call is one of the fast path, over a new connection."""

    def __init__(self, response: bytes, pieces: int) -> None:
        self._response, self._piece_count = response, pieces

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        route = SignedPost("http://localhost/", HEADERS, "eu-west-1")
        calls = FastPathCalls(api, self, self.credentials, lambda _: route)
        with translate_errors(api):
            response = await calls.call({})
            assert response is not None
            return response

    async def credentials(self) -> Keys:
        return Keys("key", "secret")

    def pool(self, url: str) -> FastPathTransport:
        return self

    async def exchange(self, request: bytes, reader_for: Any, may_repeat: bool) -> Any:
        connection = Http1Connection(bytearray(READ_BUFFER_BYTES), BodyReadScheduler())
        MemoryConnection(connection, self._response, self._piece_count)
        return await connection.exchange(request, reader_for)


class SdkTransport:
    """The client's transport: the SDK's parser reads the first page, and an empty page follows."""

    def __init__(self, status: int, body: bytes) -> None:
        self._responses = [(200, b'{"Shards":[]}'), (status, body)]

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        status, body = self._responses.pop()
        with translate_errors(api):
            response = {"status_code": status, "headers": {}, "body": body}
            parsed: dict[str, Any] = await RecordParser().parse(response, _output_shape(api))
            if status >= 300:
                raise ClientError(parsed, api)
            return parsed


@cache
def _output_shape(api: str) -> Any:
    model = ServiceModel(Loader().load_service_model("kinesis", "service-2"))
    return model.operation_model(api).output_shape


async def get_records(sent: bytes, pieces: int) -> object:
    """A call whose response are these bytes, in so many pieces."""
    client = KinesisClient(PROPERTIES, transport=FastPathTransport(sent, pieces))
    return await client.get_records(SHARD, "iterator", 10)


async def get_shard_iterator(sent: bytes, pieces: int) -> object:
    """The same for another API."""
    client = KinesisClient(PROPERTIES, transport=FastPathTransport(sent, pieces))
    return await client.get_shard_iterator(SHARD, StartingPosition.trim_horizon())


async def list_shards(body: bytes, status: int) -> object:
    """A call that the SDK parses."""
    return await KinesisClient(PROPERTIES, transport=SdkTransport(status, body)).list_shards("orders")


class Body:
    """The body of an HTTP/1.1 response that arrives in pieces."""

    def __init__(self, sent: bytes, pieces: int) -> None:
        self._pieces = _split(sent, pieces)

    async def readany(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""


async def subscribe(sent: bytes, pieces: int) -> list[Any]:
    """Every event of a subscription."""
    response = SimpleNamespace(content=Body(sent, pieces), connection=None, close=lambda: None)
    return [event async for event in EventSubscription(response, SHARD, bytearray(READ_BUFFER_BYTES))]


async def subscribe_over_http2(sent: bytes, pieces: int) -> list[Any]:
    """The same over a connection on which the server sends these bytes."""
    connection = Http2Connection(Http2Settings())
    MemoryConnection(connection, sent, pieces)
    with translate_errors("SubscribeToShard"):
        stream = connection.request(REQUEST, b"{}")
        await stream.wait_for_headers()
    return [event async for event in EventSubscription(stream, SHARD, bytearray(READ_BUFFER_BYTES))]
