"""DryRun: a call is checked and not carried out."""

import pytest

from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.errors import FatalKinesisError, ResourceNotFoundError
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-000000000000")
FROM_OLDEST = {"ShardId": SHARD.shard_id, "ShardIteratorType": "TRIM_HORIZON"}
RECORD = {"Data": b"1", "PartitionKey": "k"}


@pytest.fixture
async def endpoint():
    async with LocalKinesis(streams={"orders": 1}) as served:
        yield served


@pytest.fixture
async def client(endpoint):
    async with ManagementClient(Properties(endpoint.properties())) as opened:
        yield opened


async def test_reads_are_only_checked(endpoint, client):
    await client.dry_run("GetShardIterator", StreamName="orders", **FROM_OLDEST)
    await client.dry_run(
        "GetRecords", ShardIterator=await client.get_shard_iterator(SHARD, StartingPosition.trim_horizon())
    )
    consumer = endpoint.stream("orders").consumers.register("billing")
    consumer.active_from_ms = 0
    start = {"ConsumerARN": consumer.arn, "ShardId": SHARD.shard_id, "StartingPosition": {"Type": "LATEST"}}
    await client.dry_run("SubscribeToShard", **start)
    await client.dry_run("SubscribeToShard", **start)  # a subscription would be refused for 5 s


async def test_writes_are_only_checked(endpoint, client):
    await client.dry_run("PutRecord", StreamName="orders", **RECORD)
    await client.dry_run("PutRecords", StreamName="orders", Records=[RECORD])

    assert len(endpoint.stream("orders").shard(SHARD.shard_id).log) == 0


async def test_a_call_that_would_fail_gets_its_own_error(client):
    with pytest.raises(ResourceNotFoundError):
        await client.dry_run("GetShardIterator", StreamName="order", **FROM_OLDEST)
    with pytest.raises(FatalKinesisError, match=r"InvalidArgumentException|ValidationException"):
        await client.dry_run("PutRecords", StreamName="orders", Records=[{**RECORD, "ExplicitHashKey": str(2**128)}])


async def test_an_endpoint_that_ignores_the_parameter_is_told_from_one_that_knows_it():
    class Ignoring:
        async def call(self, api, **parameters):
            return {"ShardIterator": "1"}

    with pytest.raises(FatalKinesisError, match="the endpoint ignored the parameter DryRun"):
        await ManagementClient(Properties(), transport=Ignoring()).dry_run("GetShardIterator")
