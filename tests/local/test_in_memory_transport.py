"""The real client over the endpoint in memory, on virtual time: what each kind of fault does to a subscription."""

import asyncio

import pytest

from recordpublisher.local import Delays, MemoryTransport
from recordpublisher.local.streams.account import Account
from recordpublisher.publishers.errors import (
    ResourceInUseError,
    ResourceNotFoundError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

SHARD = Shard("orders", "shardId-000000000000")
HORIZON = StartingPosition.trim_horizon()


class Bench:
    """A client, the stream behind it and a consumer."""

    def __init__(self) -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=0), None)
        self.stream = self.account.create_stream("orders", 1)
        self.client = KinesisClient(Properties({"aws.region": "us-east-1"}), transport=MemoryTransport(self.account))

    async def subscribed(self, rules=""):
        consumer = await self.client.register_consumer(self.stream.arn, "app")
        self.account.faults.start_random(rules)
        return await self.client.subscribe_to_shard(consumer.arn, SHARD, HORIZON)


def run(scenario):
    async def main():
        bench = Bench()
        try:
            return await scenario(bench)
        finally:
            await bench.client.close()

    return run_virtual(main())


def test_records_come_by_reading_and_by_subscription():
    async def scenario(bench):
        bench.stream.put(b"one", "k")
        iterator = await bench.client.get_shard_iterator(SHARD, HORIZON)
        read = await bench.client.get_records(SHARD, iterator, 10)
        events = await bench.subscribed()
        event = await anext(events)
        bench.stream.put(b"two", "k")
        return [r.data for response in (read, event, await anext(events)) for r in response.records]

    assert run(scenario) == [b"one", b"one", b"two"]


def test_a_time_is_sent_in_seconds():
    async def scenario(bench):
        await asyncio.sleep(10)
        bench.stream.put(b"late", "k")
        start = StartingPosition.at_timestamp(await bench.client.server_time_ms("orders"))
        return len(
            (await bench.client.get_records(SHARD, await bench.client.get_shard_iterator(SHARD, start), 9)).records
        )

    assert run(scenario) == 1


def test_errors_are_those_of_the_service():
    async def scenario(bench):
        with pytest.raises(StreamNotFoundError, match="nothing"):
            await bench.client.list_shards("nothing")
        for rule in ("reset", "lost", "half", "page", "error"):
            bench.account.faults.start_random(rule)
            with pytest.raises(TransientError):
                await bench.client.get_shard_iterator(SHARD, HORIZON)

    run(scenario)


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("cut*1", TransientError),
        ("truncate*1", TransientError),
        ("corrupt*1", TransientError),
        ("event-error*1", TransientError),
        ("take-over*1", ResourceInUseError),
        ("vanish*1", ResourceNotFoundError),
        ("end*1", StopAsyncIteration),
    ],
)
def test_a_fault_applies_to_a_frame_with_records(rule, error):
    async def scenario(bench):
        bench.stream.put(b"data" * 1000, "k")
        events = await bench.subscribed(rule)
        with pytest.raises(error):
            await anext(events)

    run(scenario)


def test_a_silent_subscription_sends_nothing():
    async def scenario(bench):
        events = await bench.subscribed("silence*1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await anext(events)

    run(scenario)


def test_a_client_that_does_not_read_keeps_one_event():
    async def scenario(bench):
        for _ in range(5):
            bench.stream.put(bytes(900_000), "k")
        events = await bench.subscribed()
        await asyncio.sleep(10)
        [response] = bench.client._transport._open
        buffered = len(response._buffer)
        await anext(events)
        return buffered

    assert run(scenario) < 2_000_000


def test_closing_ends_the_subscription_on_the_other_side():
    async def scenario(bench):
        events = await bench.subscribed()
        await anext(events)
        await events.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(bench.account.subscriptions._all)

    assert run(scenario) == 0
