"""No response, and no event of a subscription, is read beyond 32 MiB (R4, F3)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.error_mapping import MAX_RESPONSE_BYTES
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.event_frames import frame, initial_response
from servers.scripted_kinesis import PROPERTIES

SHARD = Shard("orders", "shardId-000000000000")
START = StartingPosition.trim_horizon()
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1"
OK = b"HTTP/1.1 200 OK\r\n"
MIB = 2**20
ANSWER = OK + b'Content-Length: 38\r\n\r\n{"Records":[],"NextShardIterator":"n"}'
RECORDS = b'{"Data":"YWJj","SequenceNumber":"1","ApproximateArrivalTimestamp":1.5,"PartitionKey":"k"},' * 2_000
CHUNK = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
LONG = b"Content-Length: 99999999\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


class EndlessServer:
    """Responds to the first `good` requests as it should. Then sends a head, and the same bytes again and again."""

    def __init__(self, good: int, head: bytes, again: bytes) -> None:
        self.good, self.head, self.again = good, head, again
        self.sent = self.requests = 0
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
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        self.requests += 1
        if self.requests <= self.good:
            writer.write(ANSWER)
            return
        writer.write(self.head)
        while True:
            writer.write(self.again)
            await writer.drain()
            self.sent += len(self.again)


@asynccontextmanager
async def endless(head, again, client="OWN", good=0):
    """A server and a client that has used the fast path once, unless it is the SDK's."""
    endless_server = EndlessServer(good, head, again)
    server = await asyncio.start_server(endless_server.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    given = {
        **PROPERTIES,
        "aws.endpoint": f"http://127.0.0.1:{port}",
        "aws.http.client": client,
        "aws.request.timeout": 600_000,
    }
    async with server:
        async with KinesisClient(Properties(given)) as kinesis:
            yield endless_server, kinesis
        for task in endless_server.serving:
            task.cancel()
        await asyncio.gather(*endless_server.serving, return_exceptions=True)


@pytest.mark.parametrize("client", ["OWN", "SDK"])
@pytest.mark.parametrize(
    ("head", "again"),
    [
        (OK + LONG, b" " * MIB),
        (OK + b"Connection: close\r\n\r\n", b" " * MIB),
        (OK + CHUNKED, CHUNK),
        (OK + CHUNKED + b'd\r\n{"Records":[]\r\n', CHUNK),
        (OK + b'Connection: close\r\n\r\n{"Records":[', RECORDS),
        (b"HTTP/1.1 500 Bad\r\n" + CHUNKED, CHUNK),
    ],
    ids=["length", "until-close", "chunked", "chunked-json", "records", "error"],
)
async def test_a_body_without_an_end_is_not_read_to_the_deadline(client, head, again):
    async with endless(head, again, client, good=1) as (server, kinesis):
        await kinesis.get_records(SHARD, "it", 1)
        with pytest.raises(TransientError, match="33,554,432"):
            await kinesis.get_records(SHARD, "it", 1)
        assert server.requests == 2
        assert server.sent < 2 * MAX_RESPONSE_BYTES


@pytest.mark.parametrize(
    ("head", "again"),
    [
        (OK + b"X: y", b"\r\nX: y" * 1_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
        (OK + CHUNKED + b"0\r\n", b"X: y\r\n" * 1_000),
    ],
    ids=["headers", "interim-heads", "trailers"],
)
async def test_nothing_else_of_a_response_is_without_an_end(head, again):
    async with endless(head, again, good=1) as (server, kinesis):
        await kinesis.get_records(SHARD, "it", 1)
        with pytest.raises(TransientError):
            await kinesis.get_records(SHARD, "it", 1)
        assert server.sent < 2 * MAX_RESPONSE_BYTES


async def first_event(kinesis):
    events = await kinesis.subscribe_to_shard(CONSUMER, SHARD, START)
    try:
        return await anext(events)
    finally:
        await events.close()


@pytest.mark.parametrize("status", [b"200 OK", b"500 Bad"])
async def test_an_event_without_an_end_is_not_read(status):
    """Frames without an event count as part of the next one. The whole subscription has no limit."""
    stream = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    other = frame({":message-type": "event", ":event-type": "Other"}, b" " * MIB)
    async with endless(stream + b"Connection: close\r\n\r\n" + initial_response(), other) as (server, kinesis):
        with pytest.raises(TransientError, match="33,554,432"):
            await first_event(kinesis)
        assert server.sent < 2 * MAX_RESPONSE_BYTES
