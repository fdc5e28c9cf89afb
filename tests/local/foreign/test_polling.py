"""Other servers and ours agree on putting, polling and listing a stream that is not split."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from servers.kinesis_conversation import FIRST, Conversation, Responses, compare, open_conversation, texts

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

SECOND, UNKNOWN = "shardId-000000000001", "shardId-000000000099"
DIFFERENCES: dict[str, set[str]] = {
    "moto": {
        "limit 10,001",
        "future timestamp",
        "made-up iterator",
        "key of 257 characters",
        "record above 1 MiB",
    },
    "kinesis_local": {
        "hash ranges",
        "501 records",
        "limit 10,001",
        "made-up iterator",
        "key of 257 characters",
        "record above 1 MiB",
    },
    "ministack": {"hash key past the ring", "limit 10,001", "future timestamp", "made-up iterator"},
}


@pytest.mark.parametrize("server", DIFFERENCES)
def test_servers_agree_on_polling(ours: Any, foreign: Callable[[str], Any], server: str):
    compare(server, polling(ours), polling(foreign(server)), DIFFERENCES[server])


def test_kinesis_local_agrees_on_listing(ours: Any, kinesis_local: Any):
    compare("kinesis_local", listing(ours), listing(kinesis_local), set())


def polling(kinesis: Any) -> Responses:
    """Put into and poll a stream of two shards that is never split."""
    with open_conversation(kinesis, 2) as conversation:
        responses, stream = conversation.responses, conversation.stream
        summary = conversation.summary()
        responses["summary"] = [summary[key] for key in ("StreamStatus", "OpenShardCount", "RetentionPeriodHours")]
        responses["arn"] = summary["StreamARN"].rpartition(":")[2] == f"stream/{stream}"
        shards = kinesis.list_shards(StreamName=stream)["Shards"]
        responses["hash ranges"] = [shard["HashKeyRange"] for shard in shards]
        responses["open shards have no end"] = ["EndingSequenceNumber" in s["SequenceNumberRange"] for s in shards]
        entries = [{"Data": b"%d" % i, "PartitionKey": f"key-{i}"} for i in range(20)]
        put = kinesis.put_records(StreamName=stream, Records=entries)
        responses["keys go to shards by MD5"] = [record["ShardId"] for record in put["Records"]]
        responses["what is read is what was put"] = [
            conversation.read("TRIM_HORIZON", shard) for shard in (FIRST, SECOND)
        ]
        responses.update(iterator_types(conversation))
        responses.update(paging(conversation))
        refusals(conversation)
    return responses


def iterator_types(conversation: Conversation) -> Responses:
    """Start at each of the five iterator types."""
    conversation.put("a")
    middle = conversation.put("b")
    time.sleep(0.05)
    latest = conversation.iterator("LATEST")
    tail = conversation.put("c")
    stamps = conversation.kinesis.get_records(
        ShardIterator=conversation.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=tail)
    )
    return {
        "numbers grow": int(middle) < int(tail),
        "at": conversation.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=middle),
        "after": conversation.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=middle),
        "after the last": conversation.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=tail),
        "latest": texts(conversation.kinesis.get_records(ShardIterator=latest)),
        "at old timestamp": conversation.read("AT_TIMESTAMP", Timestamp=1)[-3:],
        "at timestamp": conversation.read(
            "AT_TIMESTAMP", Timestamp=stamps["Records"][0]["ApproximateArrivalTimestamp"]
        )[-1:],
    }


def paging(conversation: Conversation) -> Responses:
    """Read from iterator to iterator."""
    first = conversation.kinesis.get_records(ShardIterator=conversation.iterator("TRIM_HORIZON"), Limit=3)
    second = conversation.kinesis.get_records(ShardIterator=first["NextShardIterator"], Limit=10_000)
    third = conversation.kinesis.get_records(ShardIterator=second["NextShardIterator"])
    return {
        "a limit is kept and reading goes on": [len(first["Records"]), texts(first) + texts(second), texts(third)],
        "an open shard has a next iterator": ["NextShardIterator" in response for response in (first, second, third)],
        "behind": [second["MillisBehindLatest"], third["MillisBehindLatest"]],
    }


def refusals(conversation: Conversation) -> None:
    """Make calls that must be refused."""
    stream, iterator = conversation.stream, {"StreamName": conversation.stream, "ShardIteratorType": "TRIM_HORIZON"}
    entry = {"Data": b"x", "PartitionKey": "k"}
    conversation.refused("unknown stream", "describe_stream_summary", StreamName="missing")
    conversation.refused("put into unknown stream", "put_record", StreamName="missing", **entry)
    conversation.refused("unknown shard", "get_shard_iterator", ShardId=UNKNOWN, **iterator)
    conversation.refused("taken name", "create_stream", StreamName=stream, ShardCount=1)
    conversation.refused("501 records", "put_records", StreamName=stream, Records=[entry] * 501)
    conversation.refused(
        "hash key past the ring", "put_record", StreamName=stream, ExplicitHashKey=str(1 << 128), **entry
    )
    conversation.refused("limit 10,001", "get_records", ShardIterator=conversation.iterator("LATEST"), Limit=10_001)
    at_time = {"StreamName": stream, "ShardId": FIRST, "ShardIteratorType": "AT_TIMESTAMP"}
    conversation.refused("future timestamp", "get_shard_iterator", Timestamp=time.time() + 1000, **at_time)
    conversation.refused("made-up iterator", "get_records", ShardIterator="garbage")
    conversation.refused("key of 257 characters", "put_record", StreamName=stream, Data=b"x", PartitionKey="k" * 257)
    conversation.refused(
        "record above 1 MiB", "put_record", StreamName=stream, Data=bytes((1 << 20) + 1), PartitionKey="k"
    )


def listing(kinesis: Any) -> Responses:
    """List the shards of an unsplit stream page by page."""
    with open_conversation(kinesis, 3) as conversation:
        first = kinesis.list_shards(StreamName=conversation.stream, MaxResults=2)
        conversation.responses["first page"] = [shard["ShardId"] for shard in first["Shards"]]
        token = first.get("NextToken", "none")
        conversation.refused("token and name", "list_shards", StreamName=conversation.stream, NextToken=token)
        conversation.refused("token alone", "list_shards", NextToken=token)
        conversation.refused("made-up token", "list_shards", NextToken="garbage")
        conversation.responses["after a shard"] = conversation.shards(ExclusiveStartShardId=FIRST)
        page = kinesis.describe_stream(StreamName=conversation.stream, Limit=2)["StreamDescription"]
        conversation.responses["described page"] = [len(page["Shards"]), page["HasMoreShards"]]
    return conversation.responses
