"""The publisher DYNAMODB_STREAMS against moto, whose streams have one shard that never ends: see test_service.py for the others."""

import asyncio
import json
from uuid import uuid4

import boto3
import pytest

import recordpublisher as rp

from servers.moto_server import serve_moto

BOUND = 30
TABLE = f"orders-{uuid4().hex[:8]}"
"""The server's tables are those of the whole process."""


@pytest.fixture(scope="module")
def url():
    with serve_moto() as url:
        yield url


@pytest.fixture
def properties(url):
    return {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "x",
        "aws.credentials.provider.basic.secretkey": "y",
        "flink.stream.recordpublisher": "DYNAMODB_STREAMS",
        "flink.stream.initpos": "TRIM_HORIZON",
    }


@pytest.fixture
def table(url):
    dynamodb = boto3.client(
        "dynamodb", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
    )
    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    yield lambda *ids: [dynamodb.put_item(TableName=TABLE, Item={"id": {"S": each}, "n": {"B": b"1"}}) for each in ids]
    dynamodb.delete_table(TableName=TABLE)
    dynamodb.close()


async def read(properties, restore=None, stream=TABLE):
    """Read to the tip; returns the items' ids and the state."""
    sink = rp.MemorySink()
    async with rp.DataFetcher([stream], properties, sink=sink, restore=restore) as fetcher:
        result = await fetcher.run_bounded(max_time=BOUND, stop_at_tip=True)
        assert result.reason.name == "TIP"
        return [json.loads(each.data)["dynamodb"]["Keys"]["id"]["S"] for each in sink.records], fetcher.snapshot()


async def test_every_change_is_read_once_across_a_restart(properties, table):
    table("a", "b", "c")
    first, state = await read(properties)
    table("d", "a")
    second, _ = await read(properties, restore=json.loads(json.dumps(state)))

    assert (first, second) == (["a", "b", "c"], ["d", "a"])


@pytest.mark.slow
async def test_latest_skips_older_changes(properties, table):  # P3
    properties["flink.stream.initpos"] = "LATEST"
    table("old")
    await asyncio.sleep(1.1)  # times are in whole seconds here
    nothing, state = await read(properties)
    table("new")

    assert nothing == []
    assert (await read(properties, restore=state))[0] == ["new"]


async def test_a_table_without_a_stream_is_an_error(properties, table):
    with pytest.raises(rp.StreamNotFoundError, match="customers"):
        await read(properties, stream="customers")
