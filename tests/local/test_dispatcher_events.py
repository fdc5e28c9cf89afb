"""The events that a client of a subscription receives, with faults and back-pressure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from aiohttp import ClientPayloadError
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import ClientError, EventStreamError

from recordpublisher.local import Delays, LocalKinesis, ManualClock, StreamFault, subscriptions

SESSION = get_session()
"""One for all tests: each session reads the SDK's models."""
SHARD = "shardId-000000000000"
TIMEOUT_SECONDS = 60  # long enough for a slow machine, and half of the time after which a subscription wakes by itself
HEARTBEAT_MS = 120_000


class Reader:
    """An aiobotocore client with one registered consumer."""

    def __init__(self, endpoint: LocalKinesis, kinesis: Any, consumer_arn: str) -> None:
        self.endpoint = endpoint
        self.stream = endpoint.stream("orders")
        self.kinesis = kinesis
        self.consumer_arn = consumer_arn

    async def subscribe(self, kind: str = "TRIM_HORIZON", **more: Any) -> Any:
        position = {"Type": kind, **more}
        response = await self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer_arn, ShardId=SHARD, StartingPosition=position
        )
        return response["EventStream"]

    def advance(self, ms: int) -> None:
        assert isinstance(self.endpoint.clock, ManualClock)
        self.endpoint.clock.advance(ms)


@asynccontextmanager
async def reading(**options: Any) -> AsyncIterator[Reader]:
    async with LocalKinesis(streams={"orders": 1}, **{"delays": Delays(consumer=0), **options}) as endpoint:
        config = AioConfig(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_SECONDS)
        async with SESSION.create_client(
            "kinesis",
            region_name="us-east-1",
            endpoint_url=endpoint.url,
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=config,
        ) as kinesis:
            arn = endpoint.stream("orders").arn
            consumer = await kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")
            yield Reader(endpoint, kinesis, consumer["Consumer"]["ConsumerARN"])


@pytest.fixture
async def reader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reader]:
    monkeypatch.setattr(subscriptions, "HEARTBEAT_MS", HEARTBEAT_MS)
    async with reading(clock=ManualClock()) as reader:
        yield reader


async def next_event(events: Any) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        event: dict[str, Any] = (await anext(aiter(events)))["SubscribeToShardEvent"]
        return event


async def rest(events: Any) -> list[Any]:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return [event async for event in events]
    finally:
        events.close()


async def test_records_are_sent_as_soon_as_they_arrive(reader: Reader):
    events = await reader.subscribe("LATEST")
    for text in (b"one", b"two"):
        await reader.kinesis.put_record(StreamName="orders", Data=text, PartitionKey="k")
        event = await next_event(events)
        assert [record["Data"] for record in event["Records"]] == [text]
    events.close()


async def test_a_whole_put_records_call_is_sent_as_one_event(reader: Reader):
    events = await reader.subscribe("LATEST")
    entries = [{"Data": b"%d" % i, "PartitionKey": "k"} for i in range(3)]
    await reader.kinesis.put_records(StreamName="orders", Records=entries)
    assert [record["Data"] for record in (await next_event(events))["Records"]] == [b"0", b"1", b"2"]
    events.close()


async def test_a_split_ends_an_idle_subscription_at_once(reader: Reader):
    events = await reader.subscribe("LATEST")
    await reader.kinesis.split_shard(StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey="1000")
    [last] = await rest(events)
    assert len(last["SubscribeToShardEvent"]["ChildShards"]) == 2


async def test_deleting_the_stream_ends_the_subscription_at_once(reader: Reader):
    events = await reader.subscribe("LATEST")
    await reader.kinesis.delete_stream(StreamName="orders", EnforceConsumerDeletion=True)
    with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
        await rest(events)


async def test_a_new_subscription_continues_after_the_continuation_number(reader: Reader):
    reader.stream.put(b"old", "k")
    events = await reader.subscribe()
    continuation = (await next_event(events))["ContinuationSequenceNumber"]
    reader.advance(HEARTBEAT_MS)
    heartbeat = await next_event(events)
    assert heartbeat["Records"] == []
    assert heartbeat["ContinuationSequenceNumber"] > continuation
    reader.stream.put(b"new", "k")
    again = await reader.subscribe("AFTER_SEQUENCE_NUMBER", SequenceNumber=heartbeat["ContinuationSequenceNumber"])
    assert [record["Data"] for record in (await next_event(again))["Records"]] == [b"new"]
    again.close()
    events.close()


async def test_a_backlog_arrives_complete_and_in_order(reader: Reader):
    for i in range(5000):
        reader.stream.put(b"%d" % i, "k")
    events = await reader.subscribe()
    seen: list[int] = []
    while len(seen) < 5000:
        seen += [int(record["Data"]) for record in (await next_event(events))["Records"]]
    assert seen == list(range(5000))
    events.close()


async def test_the_response_ends_cleanly_after_five_minutes(reader: Reader):
    events = await reader.subscribe()
    reader.advance(300_000)
    assert await rest(events) == []


async def test_an_unknown_consumer_is_an_error_before_the_stream(reader: Reader):
    reader.consumer_arn = reader.consumer_arn.replace("/c:", "/missing:")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        await reader.subscribe()


async def test_a_consumer_that_is_deregistered_ends_the_stream_with_an_error(reader: Reader):
    events = await reader.subscribe()
    await reader.kinesis.deregister_stream_consumer(ConsumerARN=reader.consumer_arn)
    with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
        await rest(events)


async def test_the_subscription_of_a_closed_connection_is_removed(reader: Reader):
    events = await reader.subscribe()
    assert len(reader.endpoint.account.subscriptions._all) == 1
    events.close()
    await settle(lambda: not reader.endpoint.account.subscriptions._all)
    assert not reader.stream.shards[SHARD].log._listeners


async def settle(condition: Any) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def unread_of(subscription: Any) -> Any:
    return subscription.shard.log.read(subscription.counter, 1000, 1 << 30)


async def when_settled(subscription: Any) -> Any:
    """The unread bytes once the kernel's buffers are full."""
    before, unread = None, unread_of(subscription)
    while before is None or unread.size < before.size:
        await asyncio.sleep(0.2)
        before, unread = unread, unread_of(subscription)
    return unread


async def test_for_a_slow_reader_one_event_is_buffered_and_nothing_is_lost(reader: Reader):
    for i in range(100):
        reader.stream.put(b"%06d" % i + bytes(500_000), "k")  # 50 MB
    source, sink = await asyncio.open_connection("127.0.0.1", reader.endpoint.port, limit=1 << 16)
    body = b'{"ConsumerARN":"%b","ShardId":"%b","StartingPosition":{"Type":"TRIM_HORIZON"}}' % (
        reader.consumer_arn.encode(),
        SHARD.encode(),
    )
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.1\r\n"
    head += "X-Amz-Target: Kinesis_20131202.SubscribeToShard\r\nContent-Length: "
    sink.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
    await settle(lambda: reader.endpoint.account.subscriptions._all)
    [subscription] = reader.endpoint.account.subscriptions._all
    unread = await when_settled(subscription)
    assert len(unread.fragments) > 80
    await asyncio.sleep(0.1)
    assert unread_of(subscription).size == unread.size
    received = 0
    while received < 100 * 500_000:  # base64: the body is longer than that
        received += len(await source.read(1 << 20))
    sink.close()
    await sink.wait_closed()


async def test_a_client_that_never_reads_is_disconnected_after_its_five_minutes():
    async with reading(clock=ManualClock(), delays=Delays(consumer=0, cut_stuck_reader=200)) as reader:
        events = await reader.subscribe()
        [subscription] = reader.endpoint.account.subscriptions._all
        subscription.opened_ms -= 299_999  # the next write has 201 ms, by the loop's time
        for _ in range(100):
            reader.stream.put(bytes(500_000), "k")
        await settle(lambda: not reader.endpoint.account.subscriptions._all)
        with pytest.raises(ClientPayloadError):
            await rest(events)


# --- faults, and the error that aiobotocore raises for each


async def test_a_cut_breaks_the_connection_in_the_middle_of_a_frame(reader: Reader):
    events = await reader.subscribe()
    reader.endpoint.faults.fail_subscription(StreamFault.CUT)
    with pytest.raises(ClientPayloadError):
        await rest(events)


@pytest.mark.parametrize("fault", [StreamFault.TRUNCATE, StreamFault.END])
async def test_a_truncated_response_looks_like_a_clean_end(reader: Reader, fault: StreamFault):
    events = await reader.subscribe()
    reader.endpoint.faults.fail_subscription(fault)
    assert await rest(events) == []


async def test_a_corrupt_frame_is_a_checksum_error(reader: Reader):
    events = await reader.subscribe()
    reader.endpoint.faults.fail_subscription(StreamFault.CORRUPT)
    with pytest.raises(ChecksumMismatch):
        await rest(events)


async def test_an_error_can_be_sent_inside_the_stream(reader: Reader):
    events = await reader.subscribe()
    reader.endpoint.faults.fail_subscription(StreamFault.ERROR, code="KMSThrottlingException")
    with pytest.raises(EventStreamError, match="KMSThrottlingException"):
        await rest(events)


async def test_a_silent_subscription_keeps_its_connection_and_sends_nothing(reader: Reader):
    events = await reader.subscribe()
    reader.endpoint.faults.fail_subscription(StreamFault.SILENT)
    reader.advance(HEARTBEAT_MS)
    reader.stream.put(b"unread", "k")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await anext(aiter(events))
    events.close()


async def test_a_planned_fault_applies_to_the_next_subscription(reader: Reader):
    reader.endpoint.faults.fail_subscription(StreamFault.END)
    assert await rest(await reader.subscribe()) == []


async def test_a_subscribe_call_can_be_made_to_fail(reader: Reader):
    reader.endpoint.faults.fail_next("SubscribeToShard", "LimitExceededException")
    with pytest.raises(ClientError, match="LimitExceededException"):
        await reader.subscribe()
    (await reader.subscribe()).close()
