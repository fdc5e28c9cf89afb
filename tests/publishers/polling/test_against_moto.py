"""Polling of an unsplit stream through the real SDK against moto, another implementation of the service."""

import boto3
import pytest

from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.kinesis import KinesisClient, run_sync
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics

from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="module")
def endpoint():
    with serve_moto() as url:
        yield url


@pytest.fixture
def properties(endpoint):
    return Properties({"aws.endpoint": endpoint, "aws.region": "us-east-1", **KEYS})


@pytest.fixture
def stream(endpoint, request):
    kinesis = boto3.client(
        "kinesis", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    name = f"orders-{abs(hash(request.node.name))}"
    kinesis.create_stream(StreamName=name, ShardCount=2)
    entries = [{"Data": f"record {n}".encode(), "PartitionKey": f"key {n}"} for n in range(200)]
    kinesis.put_records(StreamName=name, Records=entries)
    kinesis.close()
    return name


class EnoughError(Exception):
    pass


async def read_to_the_tip(factory, shard, start):
    """All records up to the tip, and the last position."""
    found, position = [], None

    async def consumer(batch):
        nonlocal position
        found.extend(batch)
        position = batch.read_position or position
        if batch.millis_behind_latest == 0 and not len(batch):
            raise EnoughError
        return batch.read_position

    publisher = await factory.create(shard, start, ShardMetrics())
    with pytest.raises(EnoughError):
        await publisher.run(consumer)
    return found, position


async def test_every_record_is_read_once_over_both_shards(properties, stream):
    factory = PollingRecordPublisherFactory(properties.merged({"flink.shard.getrecords.maxrecordcount": "33"}))
    async with KinesisClient(properties) as client:
        shards = await client.list_shards(stream)
    found = [r for shard in shards for r in (await read_to_the_tip(factory, shard, StartingPosition.trim_horizon()))[0]]
    await factory.close()
    assert len(shards) == 2
    assert sorted(r.data for r in found) == sorted(f"record {n}".encode() for n in range(200))
    assert all(r.partition_key == r.data.decode().replace("record", "key") for r in found)
    assert all(r.approximate_arrival_timestamp.year >= 2024 for r in found)


async def test_reading_continues_after_a_position(properties, stream):
    factory = PollingRecordPublisherFactory(properties)
    async with KinesisClient(properties) as client:
        shard = (await client.list_shards(stream))[0]
    all_of_it, _ = await read_to_the_tip(factory, shard, StartingPosition.trim_horizon())
    middle = StartingPosition.after(SequenceNumber(all_of_it[9].sequence_number))
    rest, last = await read_to_the_tip(factory, shard, middle)
    await factory.close()
    assert [r.data for r in rest] == [r.data for r in all_of_it[10:]]
    assert last == SequenceNumber(all_of_it[-1].sequence_number)


def test_synchronous_code_describes_and_registers(properties, stream):
    async def register():
        async with KinesisClient(properties) as client:
            arn = await client.stream_arn(stream)
            registered = await client.register_consumer(arn, "me")
            described = await client.describe_consumer(arn, "me")
            await client.deregister_consumer(registered.arn)
            return described, await client.describe_consumer(arn, "me")

    described, after = run_sync(register())
    assert (described.name, described.status, after) == ("me", "ACTIVE", None)


def test_an_unknown_stream_is_an_error_that_lists_the_existing_ones(properties, stream):
    async def listed():
        async with KinesisClient(properties) as client:
            return await client.list_shards("nowhere")

    with pytest.raises(StreamNotFoundError, match=stream):
        run_sync(listed())
