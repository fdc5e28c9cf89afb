"""Responses that are not HTTP or break off: errors of the HTTP client, of sockets and of TLS are raised as ours (R4, F3)."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager, suppress

import pytest

from recordpublisher.publishers.errors import KinesisError, TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.event_frames import event, initial_response
from servers.scripted_kinesis import PROPERTIES

SHARD = Shard("orders", "shardId-000000000000")
START = StartingPosition.trim_horizon()
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1"
OK = b"HTTP/1.1 200 OK\r\n"
STREAM = OK + b"Content-Type: application/vnd.amazon.eventstream\r\n"


class RawServer:
    """Sends `response` for each request, then closes the connection, or resets it if `resets`."""

    response = b""
    resets = False
    url = ""

    def __init__(self) -> None:
        self.serving: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            await self._respond(reader, writer)
        finally:
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.response)
            await writer.drain()
        if self.resets:
            writer.transport.abort()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def server_and_client():
    """A raw server and a client of it."""
    server_side = RawServer()
    server = await asyncio.start_server(server_side.handle, "127.0.0.1", 0)
    server_side.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with KinesisClient(Properties({**PROPERTIES, "aws.endpoint": f"http://{server_side.url}"})) as client:
            yield server_side, client
        for task in server_side.serving:
            task.cancel()
        await asyncio.gather(*server_side.serving, return_exceptions=True)


async def not_transient(responses, *calls):
    """The responses that did not raise TransientError, each with the result or error instead."""
    wrong = {}
    async with server_and_client() as (server_side, client):
        for server_side.response, server_side.resets, call in itertools.product(responses, (False, True), calls):
            try:
                wrong[server_side.response, server_side.resets] = await call(client)
            except Exception as error:
                if type(error) is not TransientError:
                    wrong[server_side.response, server_side.resets] = error
    return wrong


async def read_all(client):
    """Read a subscription to its end and close it, as a publisher does."""
    events = await client.subscribe_to_shard(CONSUMER, SHARD, START)
    try:
        return [event async for event in events]
    finally:
        await events.close()


async def test_a_malformed_or_incomplete_response_is_transient():
    responses = [
        b"",
        b"\x16\x03\x01\x00\xa5",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK",
        OK + b"Content-Length: abc\r\n\r\n",
        OK + b"Content-Length: 100\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n40\r\n{",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n",
        OK + b"Content-Length: 4\r\n\r\n\xff\xfe{}",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\n\xff\xfe{}",
    ]
    calls = (lambda client: client.get_records(SHARD, "it", 1), lambda client: client.list_shards("orders"))
    assert await not_transient(responses, *calls) == {}


async def test_a_malformed_or_incomplete_subscription_is_transient():
    empty = event(Records=[], ContinuationSequenceNumber="1")
    responses = [
        b"",
        STREAM + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        STREAM + b"Transfer-Encoding: chunked\r\n\r\n400\r\nabc",
        STREAM + b"Content-Length: 5000\r\n\r\n" + initial_response(),
        STREAM + b"Content-Length: 20\r\n\r\n" + b"not a frame at all, no",
        STREAM + b"\r\n" + initial_response() + empty[:-3],
        STREAM + b"\r\n" + initial_response() + empty[:-1] + b"!",
        STREAM + b"\r\n" + event(Wrong="fields"),
        STREAM + b"\r\n" + event(Records="text"),
    ]
    assert await not_transient(responses, read_all) == {}


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://127.0.0.1:1", "http://nowhere.invalid"])
async def test_an_unreachable_server_is_transient(endpoint):
    async with KinesisClient(Properties({**PROPERTIES, "aws.endpoint": endpoint})) as client:
        with pytest.raises(TransientError):
            await client.list_shards("orders")


async def test_tls_to_a_server_without_tls_is_a_kinesis_error():
    async with server_and_client() as (server_side, _):
        server_side.response = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        secured = Properties({**PROPERTIES, "aws.endpoint": f"https://{server_side.url}", "aws.request.timeout": 2_000})
        async with KinesisClient(secured) as client:
            with pytest.raises(KinesisError):
                await client.list_shards("orders")
