"""What is not even HTTP, or stops being it: raw errors of the HTTP client, of sockets and of TLS come out as ours (R4, F3)."""

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


class Says:
    """What the server says next, and whether it hangs up or resets the connection then."""

    response = b""
    resets = False
    url = ""

    def __init__(self) -> None:
        self.serving: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
async def answering():
    """A server that takes a request, says what it is told and goes away, and a client of it."""
    says = Says()
    server = await asyncio.start_server(says.handle, "127.0.0.1", 0)
    says.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with KinesisClient(Properties({**PROPERTIES, "aws.endpoint": f"http://{says.url}"})) as client:
            yield says, client
        for task in says.serving:
            task.cancel()
        await asyncio.gather(*says.serving, return_exceptions=True)


async def wrongly_taken(responses, *calls):
    """The responses that did not come out as an error worth a retry, with what came instead."""
    wrong = {}
    async with answering() as (says, client):
        for says.response, says.resets, call in itertools.product(responses, (False, True), calls):
            try:
                wrong[says.response, says.resets] = await call(client)
            except Exception as error:
                if type(error) is not TransientError:
                    wrong[says.response, says.resets] = error
    return wrong


async def read_all(client):
    """Read a subscription to its end and close it, as its owner does."""
    events = await client.subscribe_to_shard(CONSUMER, SHARD, START)
    try:
        return [event async for event in events]
    finally:
        await events.close()


async def test_an_answer_that_is_not_http_or_not_whole_is_worth_a_retry():
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
    assert await wrongly_taken(responses, *calls) == {}


async def test_a_subscription_that_is_not_whole_is_worth_a_retry():
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
    assert await wrongly_taken(responses, read_all) == {}


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://127.0.0.1:1", "http://nowhere.invalid"])
async def test_nobody_there_is_worth_a_retry(endpoint):
    async with KinesisClient(Properties({**PROPERTIES, "aws.endpoint": endpoint})) as client:
        with pytest.raises(TransientError):
            await client.list_shards("orders")


async def test_tls_to_a_server_without_it_is_an_error_of_ours():
    async with answering() as (says, _):
        says.response = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        secured = Properties({**PROPERTIES, "aws.endpoint": f"https://{says.url}", "aws.request.timeout": 2_000})
        async with KinesisClient(secured) as client:
            with pytest.raises(KinesisError):
                await client.list_shards("orders")
