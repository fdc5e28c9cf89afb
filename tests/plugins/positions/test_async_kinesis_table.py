"""The table of async-kinesis in DynamoDB, simulated by moto."""

import asyncio
import uuid

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.plugins.positions.async_kinesis_checkpoints import ShardCheckpoint
from recordpublisher.plugins.positions.async_kinesis_table import AsyncKinesisTable

from fakes.async_kinesis.rows import row
from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="module")
def with_table():
    """Runs an async function with a new table, and with a boto3 client."""
    with serve_moto() as url:
        properties = rp.Properties({"aws.region": "us-east-1", "flink.state.endpoint": url, **KEYS})
        access = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        client = boto3.client("dynamodb", endpoint_url=url, **access)

        def run(use):
            async def with_table():
                name = f"kinesis-checkpoints-{uuid.uuid4().hex}"
                table = AsyncKinesisTable(name, properties)
                try:
                    await use(table, client, name)
                finally:
                    await table.close()

            asyncio.run(with_table())

        yield run
        client.close()


def test_rows_are_written_and_read(with_table):
    async def use(table, client, name):
        assert await table.read() is None
        await table.create()
        await table.write(ShardCheckpoint("shard-1", "17"), None)
        await table.write(ShardCheckpoint("shard-0"), None)
        assert await table.read() == [ShardCheckpoint("shard-0"), ShardCheckpoint("shard-1", "17")]
        expiry = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}

    with_table(use)


@pytest.mark.parametrize(
    "before", [row("shard-1", "17"), row("shard-1"), row("shard-1", "17", "app/1", 5), {"shard_id": {"S": "shard-1"}}]
)
def test_a_row_replaces_only_the_one_that_was_seen(with_table, before):
    async def use(table, client, name):
        await table.create()
        client.put_item(TableName=name, Item=before)
        (seen,) = await table.read()
        await table.write(ShardCheckpoint("shard-1", "18"), seen)
        assert await table.read() == [ShardCheckpoint("shard-1", "18")]
        for wrong in (seen, None):
            with pytest.raises(rp.StateError, match=r"the row shard-1 .* was changed meanwhile"):
                await table.write(ShardCheckpoint("shard-1", "19"), wrong)
        assert await table.read() == [ShardCheckpoint("shard-1", "18")]

    with_table(use)
