"""The client reads and writes an account in its own process."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import recordpublisher as rp
from recordpublisher.local import Delays, MemoryTransport, in_memory
from recordpublisher.local.account import Account
from recordpublisher.local.clock import ManualClock
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.errors import (
    ResourceInUseError,
    ResourceNotFoundError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.client import TRANSPORTS_OF_THREADS
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

SHARD = Shard("orders", "shardId-000000000000")
HORIZON = StartingPosition.trim_horizon()


class Setup:
    """A client and its stream."""

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
        setup = Setup()
        try:
            return await scenario(setup)
        finally:
            await setup.client.close()

    return run_virtual(main())


def test_records_are_read_by_polling_and_by_subscription():
    async def scenario(setup):
        setup.stream.put(b"one", "k")
        iterator = await setup.client.get_shard_iterator(SHARD, HORIZON)
        read = await setup.client.get_records(SHARD, iterator, 10)
        events = await setup.subscribed()
        event = await anext(events)
        setup.stream.put(b"two", "k")
        return [r.data for response in (read, event, await anext(events)) for r in response.records]

    assert run(scenario) == [b"one", b"one", b"two"]


def test_a_timestamp_is_sent_in_seconds():
    async def scenario(setup):
        await asyncio.sleep(10)
        setup.stream.put(b"late", "k")
        start = StartingPosition.at_timestamp(await setup.client.server_time_ms("orders"))
        return len(
            (await setup.client.get_records(SHARD, await setup.client.get_shard_iterator(SHARD, start), 9)).records
        )

    assert run(scenario) == 1


def test_errors_are_those_of_the_service():
    async def scenario(setup):
        with pytest.raises(StreamNotFoundError, match="nothing"):
            await setup.client.list_shards("nothing")
        for rule in ("reset", "lost", "half", "page", "error"):
            setup.account.faults.start_random(rule)
            with pytest.raises(TransientError):
                await setup.client.get_shard_iterator(SHARD, HORIZON)

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
    async def scenario(setup):
        setup.stream.put(b"data" * 1000, "k")
        events = await setup.subscribed(rule)
        with pytest.raises(error):
            await anext(events)

    run(scenario)


def test_a_silent_subscription_sends_nothing():
    async def scenario(setup):
        events = await setup.subscribed("silence*1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await anext(events)

    run(scenario)


def test_for_a_client_that_does_not_read_one_event_is_buffered():
    async def scenario(setup):
        for _ in range(5):
            setup.stream.put(bytes(900_000), "k")
        events = await setup.subscribed()
        await asyncio.sleep(10)
        [response] = setup.client._transports.for_stream(None)._open
        buffered = len(response._buffer)
        await anext(events)
        return buffered

    assert run(scenario) < 2_000_000


def test_closing_the_client_ends_the_subscription_of_the_endpoint():
    async def scenario(setup):
        events = await setup.subscribed()
        await anext(events)
        await events.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(setup.account.subscriptions._all)

    assert run(scenario) == 0


async def test_a_job_in_memory_reads_the_shards_that_a_test_splits_and_merges():
    sink = rp.MemorySink()
    with in_memory({"orders": 1}) as account:
        orders = account.find("orders")
        orders.put(b"1", "k")
        assert (children := orders.split("shardId-000000000000")) == ("shardId-000000000001", "shardId-000000000002")
        orders.put(b"2", "k")
        assert orders.merge(*children) == "shardId-000000000003"
        orders.put(b"3", "k")
        async with rp.DataFetcher("orders", region="eu-west-1", start="TRIM_HORIZON", sink=sink) as job:
            await job.run_bounded(stop_at_tip=True)
    assert [record.data for record in sink.records] == [b"1", b"2", b"3"]


async def test_encoded_bodies_of_the_client_are_accepted():
    account = Account(ManualClock(), "us-east-1", Delays(), None)
    stream = account.create_stream("out", 1)
    client = KinesisClient(Properties({"aws.region": "us-east-1"}), ["out"], transport=MemoryTransport(account))

    async with KinesisSink("out", {}, port=client) as sink:
        await sink.put(b"1", "k")

    assert len(stream.open_shards[0].log) == 1


def test_threads_that_a_test_starts_use_the_account_of_the_innermost_block():
    """Otherwise a unit test would write to the service."""

    def put(name):
        with rp.Producer("orders", region="us-east-1") as producer:
            producer.put(name, "k")

    def read():
        return [record.data for record in rp.consume("orders", region="us-east-1", start="earliest", stop_at_tip=True)]

    with in_memory({"orders": 1}):
        with in_memory({"orders": 1}), ThreadPoolExecutor(1) as pool:
            pool.submit(put, b"inner").result()
            assert read() == [b"inner"]
        thread = threading.Thread(target=put, args=(b"outer",))
        thread.start()
        thread.join()
        assert read() == [b"outer"]
    assert TRANSPORTS_OF_THREADS == []


async def test_blocks_of_two_tasks_stay_apart():
    async def put_and_read(name):
        with in_memory({"orders": 1}):
            async with rp.KinesisSink("orders", region="us-east-1") as sink:
                await asyncio.sleep(0.01)
                await sink.put(name, "k", wait=True)
            reading = rp.consume("orders", region="us-east-1", start="earliest", stop_at_tip=True)
            return [record.data async for record in reading]

    assert await asyncio.gather(put_and_read(b"1"), put_and_read(b"2")) == [[b"1"], [b"2"]]
