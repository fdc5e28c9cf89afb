"""The Kinesis sink on a stream whose record distribution changes while it writes (S4)."""

import asyncio

import pytest

from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.plugins.sinks.kinesis.shard_queues import (
    MIN_DESCRIBE_INTERVAL_SECONDS,
    PERIODIC_REFRESH_SECONDS,
)
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.batches import user_records
from fakes.writable_stream import FakeKinesis, a_sink, now

UNPACED = {"RateLimit": 1_000_000, "AggregationMaxCount": 20}


async def stored_numbers(endpoint):
    """Every user record in the shards, whatever their keys."""
    numbers = []
    async with KinesisClient(Properties(endpoint.properties())) as client:
        for shard in await client.list_shards("out"):
            iterator = await client.get_shard_iterator(shard, StartingPosition.trim_horizon())
            for record in (await client.get_records(shard, iterator, 10_000)).records:
                numbers += [int(part.data) for part in user_records(record)]
    return sorted(numbers)


@pytest.mark.parametrize("aggregated", [False, True])
@pytest.mark.parametrize("may_describe", [False, True])
async def test_s4_a_switch_to_auto_repeats_and_loses_nothing(aggregated, may_describe):
    async with LocalKinesis(streams={"out": 4}) as endpoint:
        if not may_describe:
            endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException", 1000)
        properties = {**endpoint.properties(), **UNPACED, "AggregationEnabled": aggregated}
        async with asyncio.timeout(60), KinesisSink("out", properties) as sink:
            for number in range(200):
                await sink.put(str(number).encode(), f"key-{number}")
            await sink.flush()
            endpoint.stream("out").mode = "ON_DEMAND"
            endpoint.stream("out").distribution = "AUTO"
            for number in range(200, 2000):
                await sink.put(str(number).encode(), f"key-{number}")
            await sink.flush()
            assert sink.metrics()["shardMapRefreshes"] < 10
        assert await stored_numbers(endpoint) == list(range(2000))


@pytest.mark.parametrize("resharded", [False, True])
def test_s4_after_a_switch_back_readers_drop_nothing_of_an_aggregate(resharded):
    """The switch shows in no result, so an aggregate never has records of two shards' ranges."""

    async def job():
        fake = FakeKinesis(4)
        fake.switch_distribution(by_key=False)
        async with a_sink(fake, {"AggregationEnabled": True, "AggregationMaxCount": 20}) as sink:
            for number in range(200):
                await sink.put(str(number).encode(), f"key-{number}")
            await sink.flush()
            if resharded:
                fake.split("s0")
                await asyncio.sleep(PERIODIC_REFRESH_SECONDS + MIN_DESCRIBE_INTERVAL_SECONDS)
            before = {shard: len(one.taken) for shard, one in fake.shards.items()}
            fake.switch_distribution(by_key=True)
            for number in range(200, 2000):
                await sink.put(str(number).encode(), f"key-{number}")
            await sink.flush()
        for shard, one in fake.shards.items():
            one.taken = one.taken[before[shard] :]
        assert sorted(int(data) for _, data in fake.user_records()) == list(range(200, 2000))
        assert max(fake.calls) < 100  # aggregates, not single records

    run_virtual(job())


def test_s4_a_split_under_auto_is_noticed_by_the_first_record_in_a_new_shard():
    async def job():
        fake = FakeKinesis(2)
        fake.switch_distribution(by_key=False)
        async with a_sink(fake, {"AggregationEnabled": True, "AggregationMaxCount": 20}) as sink:
            fake.split("s0")
            began, listings = now(), fake.listings
            while fake.listings == listings:
                for number in range(100):
                    await sink.put(str(number).encode(), f"key-{number}")
                await asyncio.sleep(0.5)
            assert now() - began < PERIODIC_REFRESH_SECONDS

    run_virtual(job())


@pytest.mark.parametrize("aggregated", [False, True])
def test_s4_a_sink_notices_the_switch_back(aggregated):
    """Then each shard has its own queue and rate limit again, and a record in another shard is noticed."""

    async def job():
        fake = FakeKinesis(4)
        fake.switch_distribution(by_key=False)
        async with a_sink(fake, {"AggregationEnabled": aggregated}) as sink:
            fake.switch_distribution(by_key=True)
            await asyncio.sleep(PERIODIC_REFRESH_SECONDS + MIN_DESCRIBE_INTERVAL_SECONDS)
            listings = fake.listings
            await asyncio.sleep(10 * PERIODIC_REFRESH_SECONDS)
            assert fake.listings == listings  # only a stream with AUTO is listed again and again
            fake.switch_distribution(by_key=False)
            for number in range(100):
                await sink.put(str(number).encode(), f"key-{number}")
            await sink.flush()
            assert fake.listings > listings
        assert sorted(int(data) for _, data in stored(fake)) == list(range(100))

    run_virtual(job())


def test_s4_looks_at_a_stream_with_auto_that_fail_end_no_sink():
    """Nobody waits for them: records are sent by the map that the sink has."""

    async def job():
        fake = FakeKinesis(4)
        fake.switch_distribution(by_key=False)
        async with a_sink(fake) as sink:
            fake.listing_error = TransientError("ListShards", "InternalFailure", "")
            await asyncio.sleep(10 * PERIODIC_REFRESH_SECONDS)
            await sink.put(b"1", "key-1")
            await sink.flush()
            fake.listing_error = None
            fake.switch_distribution(by_key=True)
            await asyncio.sleep(3 * PERIODIC_REFRESH_SECONDS)
            listings = fake.listings
            await asyncio.sleep(3 * PERIODIC_REFRESH_SECONDS)
            assert fake.listings == listings  # the switch back was noticed
        assert [data for _, data in stored(fake)] == [b"1"]

    run_virtual(job())


def stored(fake):
    """Every user record in the shards, whatever their keys."""
    for one in fake.shards.values():
        one.shard = Shard("out", one.shard.shard_id)
    return fake.user_records()
