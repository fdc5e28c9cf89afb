"""The Kinesis sink on a stream whose record distribution changes while it writes (S4)."""

import asyncio

import pytest

from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties

from fakes.batches import user_records

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
