"""DynamoDB Streams by the recipe of docs/how-to/read-dynamodb-streams.md, on a DynamoDB of its own."""

import asyncio
import json
import sys
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError

import recordpublisher as rp
from recordpublisher.plugins.host.manager import load_registry

from processes.command_line import ROOT
from servers.moto_server import serve_moto

sys.path.append(str(ROOT / "examples" / "dynamodb_publisher"))

from dynamodb_publisher import plugin, streams

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
        "flink.stream.recordpublisher": "DYNAMODB",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.dynamodb.tip.empty.reads": 2,
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
    registry = load_registry([plugin])
    async with rp.DataFetcher([stream], properties, sink=sink, restore=restore, registry=registry) as fetcher:
        result = await fetcher.run_bounded(max_time=BOUND, stop_at_tip=True)
        assert result.reason.name == "TIP"
        return [json.loads(each.data)["dynamodb"]["Keys"]["id"]["S"] for each in sink.records], fetcher.snapshot()


async def test_every_change_is_read_once_across_a_restart(properties, table):
    table("a", "b", "c")
    first, state = await read(properties)
    table("d", "a")
    second, _ = await read(properties, restore=json.loads(json.dumps(state)))

    assert (first, second) == (["a", "b", "c"], ["d", "a"])


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


class Answers:
    """A fake SDK client that returns the given responses in order."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def __getattr__(self, call):
        async def answer(**fields):
            self.asked.append((call, fields))
            told = self.answers[call].pop(0)
            if isinstance(told, Exception):
                raise told
            return told

        return answer


def a_service(**answers):
    service = streams.DynamoDbStreams(
        rp.Properties(
            {"aws.region": "us-east-1", "aws.endpoint": "http://127.0.0.1:1", "flink.dynamodb.tip.empty.reads": 2}
        )
    )
    service._client = Answers(list_streams=[{"Streams": [{"StreamArn": "arn", "StreamLabel": "1"}]}], **answers)
    return service


def described(shard_id, parent=None, closed=False, last=None):
    numbers = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": "9"} if closed else {})
    shard = {"ShardId": shard_id, "SequenceNumberRange": numbers} | ({"ParentShardId": parent} if parent else {})
    return {"StreamDescription": {"Shards": [shard]} | ({"LastEvaluatedShardId": last} if last else {})}


async def test_shards_are_listed_page_by_page_with_parents_and_spread_over_subtasks():
    service = a_service(describe_stream=[described("a", closed=True, last="a"), described("b", "a")])

    parent, child = await service.list_shards(TABLE)

    assert (parent.closed, child.closed, child.parents) == (True, False, ("a",))
    assert parent.hash_range != child.hash_range
    assert service._client.asked[-1] == ("describe_stream", {"StreamArn": "arn", "ExclusiveStartShardId": "a"})


async def test_a_shard_end_has_no_iterator_and_the_tip_is_reported_after_some_empty_responses():
    more, end = {"Records": [], "NextShardIterator": "own"}, {"Records": []}
    service = a_service(get_shard_iterator=[{"ShardIterator": "own"}], get_records=[more, more, end])
    shard = rp.Shard(TABLE, "a")
    iterator = await service.get_shard_iterator(shard, rp.StartingPosition.trim_horizon())
    answers = []
    while iterator is not None:
        answers.append(await service.get_records(shard, iterator, 10_000))
        iterator = answers[-1].next_iterator

    assert [answer.millis_behind_latest for answer in answers] == [None, 0, 0]
    assert service._client.asked[-1][1] == {"ShardIterator": "own", "Limit": 1000}


async def test_trimmed_records_are_data_loss():
    trimmed = ClientError({"Error": {"Code": "TrimmedDataAccessException", "Message": "gone"}}, "GetShardIterator")
    service = a_service(get_shard_iterator=[trimmed])

    with pytest.raises(rp.DataLossError, match="24 hours"):
        await service.get_shard_iterator(rp.Shard(TABLE, "a"), rp.StartingPosition.after(rp.SequenceNumber("5")))
