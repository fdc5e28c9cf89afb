"""No response, and no event of a subscription, is read beyond 32 MiB (R4, F3)."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.error_mapping import MAX_RESPONSE_BYTES
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.endless_server import CHUNK, CHUNKED, LONG, MIB, OK, serve_endless
from servers.event_frames import frame, initial_response
from servers.scripted_kinesis import PROPERTIES

SHARD = Shard("orders", "shardId-000000000000")
START = StartingPosition.trim_horizon()
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1"
ANSWER = OK + b'Content-Length: 38\r\n\r\n{"Records":[],"NextShardIterator":"n"}'
RECORDS = b'{"Data":"YWJj","SequenceNumber":"1","ApproximateArrivalTimestamp":1.5,"PartitionKey":"k"},' * 2_000


@asynccontextmanager
async def endless(head, again, client="OWN", good=0):
    """A server and a client that has used the fast path once, unless it is the SDK's."""
    async with serve_endless(head, again, good=[ANSWER] * good) as server:
        given = {
            **PROPERTIES,
            "aws.endpoint": server.url,
            "aws.http.client": client,
            "aws.request.timeout": 600_000,
        }
        async with KinesisClient(Properties(given)) as kinesis:
            yield server, kinesis


@pytest.mark.slow
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


ROLE = """[profile role]
role_arn=arn:aws:iam::123456789012:role/r
source_profile=keys
[profile keys]
aws_access_key_id=a
aws_secret_access_key=s
"""


async def test_a_service_that_the_sdks_credential_chain_calls_is_not_read_without_an_end(tmp_path, monkeypatch):
    (tmp_path / "config").write_text(ROLE)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    provider = "aws.credentials.provider"
    given = {"aws.region": "eu-west-1", provider: "PROFILE", f"{provider}.profile.name": "role"}
    async with serve_endless(OK + CHUNKED, CHUNK) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        async with KinesisClient(Properties(given)) as kinesis:
            with pytest.raises(TransientError, match="33,554,432"):
                await kinesis.list_shards("orders")
        assert server.sent < 2 * MAX_RESPONSE_BYTES
