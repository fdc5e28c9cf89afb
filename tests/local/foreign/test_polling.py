"""Foreign servers and ours agree on putting, polling and listing a stream that is not split."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from servers.kinesis_conversation import FIRST, Answers, Talk, compare, talking, texts

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


def polling(kinesis: Any) -> Answers:
    """Put into and poll a stream of two shards that is never split."""
    with talking(kinesis, 2) as talk:
        said, stream = talk.said, talk.stream
        summary = talk.summary()
        said["summary"] = [summary[key] for key in ("StreamStatus", "OpenShardCount", "RetentionPeriodHours")]
        said["arn"] = summary["StreamARN"].rpartition(":")[2] == f"stream/{stream}"
        shards = kinesis.list_shards(StreamName=stream)["Shards"]
        said["hash ranges"] = [shard["HashKeyRange"] for shard in shards]
        said["open shards have no end"] = ["EndingSequenceNumber" in s["SequenceNumberRange"] for s in shards]
        entries = [{"Data": b"%d" % i, "PartitionKey": f"key-{i}"} for i in range(20)]
        put = kinesis.put_records(StreamName=stream, Records=entries)
        said["keys go to shards by MD5"] = [record["ShardId"] for record in put["Records"]]
        said["what is read is what was put"] = [talk.read("TRIM_HORIZON", shard) for shard in (FIRST, SECOND)]
        said.update(places(talk))
        said.update(paging(talk))
        refusals(talk)
    return said


def places(talk: Talk) -> Answers:
    """Start at each of the five iterator types."""
    talk.put("a")
    middle = talk.put("b")
    time.sleep(0.05)
    latest = talk.iterator("LATEST")
    tail = talk.put("c")
    stamps = talk.kinesis.get_records(ShardIterator=talk.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=tail))
    return {
        "numbers grow": int(middle) < int(tail),
        "at": talk.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=middle),
        "after": talk.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=middle),
        "after the last": talk.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=tail),
        "latest": texts(talk.kinesis.get_records(ShardIterator=latest)),
        "at old timestamp": talk.read("AT_TIMESTAMP", Timestamp=1)[-3:],
        "at timestamp": talk.read("AT_TIMESTAMP", Timestamp=stamps["Records"][0]["ApproximateArrivalTimestamp"])[-1:],
    }


def paging(talk: Talk) -> Answers:
    """Read on from iterator to iterator, and list shards page by page."""
    first = talk.kinesis.get_records(ShardIterator=talk.iterator("TRIM_HORIZON"), Limit=3)
    second = talk.kinesis.get_records(ShardIterator=first["NextShardIterator"], Limit=10_000)
    third = talk.kinesis.get_records(ShardIterator=second["NextShardIterator"])
    return {
        "a limit is kept and reading goes on": [len(first["Records"]), texts(first) + texts(second), texts(third)],
        "an open shard has a next iterator": ["NextShardIterator" in answer for answer in (first, second, third)],
        "behind": [second["MillisBehindLatest"], third["MillisBehindLatest"]],
    }


def refusals(talk: Talk) -> None:
    """Call for what cannot be had."""
    stream, iterator = talk.stream, {"StreamName": talk.stream, "ShardIteratorType": "TRIM_HORIZON"}
    entry = {"Data": b"x", "PartitionKey": "k"}
    talk.refused("unknown stream", "describe_stream_summary", StreamName="nobody")
    talk.refused("put into unknown stream", "put_record", StreamName="nobody", **entry)
    talk.refused("unknown shard", "get_shard_iterator", ShardId=UNKNOWN, **iterator)
    talk.refused("taken name", "create_stream", StreamName=stream, ShardCount=1)
    talk.refused("501 records", "put_records", StreamName=stream, Records=[entry] * 501)
    talk.refused("hash key past the ring", "put_record", StreamName=stream, ExplicitHashKey=str(1 << 128), **entry)
    talk.refused("limit 10,001", "get_records", ShardIterator=talk.iterator("LATEST"), Limit=10_001)
    at_time = {"StreamName": stream, "ShardId": FIRST, "ShardIteratorType": "AT_TIMESTAMP"}
    talk.refused("future timestamp", "get_shard_iterator", Timestamp=time.time() + 1000, **at_time)
    talk.refused("made-up iterator", "get_records", ShardIterator="garbage")
    talk.refused("key of 257 characters", "put_record", StreamName=stream, Data=b"x", PartitionKey="k" * 257)
    talk.refused("record above 1 MiB", "put_record", StreamName=stream, Data=bytes((1 << 20) + 1), PartitionKey="k")


def listing(kinesis: Any) -> Answers:
    """List the shards of an unsplit stream page by page."""
    with talking(kinesis, 3) as talk:
        first = kinesis.list_shards(StreamName=talk.stream, MaxResults=2)
        talk.said["first page"] = [shard["ShardId"] for shard in first["Shards"]]
        token = first.get("NextToken", "none")
        talk.refused("token and name", "list_shards", StreamName=talk.stream, NextToken=token)
        talk.refused("token alone", "list_shards", NextToken=token)
        talk.refused("made-up token", "list_shards", NextToken="garbage")
        talk.said["after a shard"] = talk.shards(ExclusiveStartShardId=FIRST)
        page = kinesis.describe_stream(StreamName=talk.stream, Limit=2)["StreamDescription"]
        talk.said["described page"] = [len(page["Shards"]), page["HasMoreShards"]]
    return talk.said
