"""The same conversations with our endpoint and with foreign servers: their normalised answers agree.

Where they do not, the difference stands in DIFFERENCES and, with its reason, in docs/reference/embedded-endpoint.md. A
difference that has gone is a failure too, so the table stays true.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import BotoCoreError, ClientError

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

Answers = dict[str, object]
HALF = 1 << 127
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
UNKNOWN = "shardId-000000000099"


# --- asking


class Talk:
    """One conversation about one stream: asks, and keeps what is said in a form that servers can be compared in."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self.kinesis = kinesis
        self.stream = stream
        self.said: Answers = {}

    def refused(self, step: str, operation: str, **fields: Any) -> None:
        """Keep the error code that a call is answered with."""
        try:
            getattr(self.kinesis, operation)(**fields)
            self.said[step] = "no error"
        except ClientError as error:
            self.said[step] = error.response["Error"]["Code"]
        except BotoCoreError as error:
            self.said[step] = type(error).__name__

    def wait_active(self) -> None:
        self._wait_for("ACTIVE", lambda: self.summary()["StreamStatus"])

    def wait_consumer(self, arn: str) -> None:
        self._wait_for("ACTIVE", lambda: self.kinesis.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"])

    def _wait_for(self, status: str, ask: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            answer = ask()
            if status in (answer, answer["ConsumerStatus"] if isinstance(answer, dict) else None):
                return
            time.sleep(0.02)
        pytest.fail(f"not {status} after 10 s")

    def summary(self) -> dict[str, Any]:
        answer = self.kinesis.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]
        assert isinstance(answer, dict)
        return answer

    def put(self, text: str, hash_key: int = 0) -> str:
        answer = self.kinesis.put_record(
            StreamName=self.stream, Data=text.encode(), PartitionKey="k", ExplicitHashKey=str(hash_key)
        )
        return str(answer["SequenceNumber"])

    def iterator(self, kind: str, shard: str = FIRST, **more: Any) -> str:
        answer = self.kinesis.get_shard_iterator(StreamName=self.stream, ShardId=shard, ShardIteratorType=kind, **more)
        return str(answer["ShardIterator"])

    def read(self, kind: str, shard: str = FIRST, **more: Any) -> list[str]:
        return texts(self.kinesis.get_records(ShardIterator=self.iterator(kind, shard, **more)))

    def shards(self, **more: Any) -> list[str]:
        return [s["ShardId"] for s in self.kinesis.list_shards(StreamName=self.stream, **more)["Shards"]]


def texts(answer: Any) -> list[str]:
    return [record["Data"].decode() for record in answer["Records"]]


@contextmanager
def talking(kinesis: Any, shard_count: int) -> Iterator[Talk]:
    talk = Talk(kinesis, f"s-{uuid4().hex[:12]}")
    kinesis.create_stream(StreamName=talk.stream, ShardCount=shard_count)
    talk.wait_active()
    yield talk
    kinesis.delete_stream(StreamName=talk.stream, EnforceConsumerDeletion=True)


# --- conversations


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
    """Ask for what cannot be had."""
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
    talk.refused("record above 1 MiB", "put_record", StreamName=stream, Data=bytes(1 << 20), PartitionKey="k")


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


def registration(kinesis: Any) -> Answers:
    """Register, look up, list and deregister a consumer."""
    with talking(kinesis, 1) as talk:
        arn = talk.summary()["StreamARN"]
        said = talk.said
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]
        said["arn carries the creation time"] = bool(re.fullmatch(r".*/consumer/c:\d+", consumer["ConsumerARN"]))
        said["status at first"] = consumer["ConsumerStatus"]
        talk.wait_consumer(consumer["ConsumerARN"])
        described = kinesis.describe_stream_consumer(StreamARN=arn, ConsumerName="c")["ConsumerDescription"]
        said["found by name"] = [described["ConsumerStatus"], described["StreamARN"] == arn]
        said["listed"] = [c["ConsumerName"] for c in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]]
        said["consumers in the summary"] = talk.summary().get("ConsumerCount")
        talk.refused("taken name", "register_stream_consumer", StreamARN=arn, ConsumerName="c")
        talk.refused("unknown consumer", "describe_stream_consumer", StreamARN=arn, ConsumerName="nobody")
        kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName="c")
        time.sleep(0.3)
        talk.refused("after deregistration", "describe_stream_consumer", StreamARN=arn, ConsumerName="c")
    return said


def resharding(kinesis: Any) -> Answers:
    """Split and merge, and read parents to their end."""
    with talking(kinesis, 1) as talk:
        said, stream = talk.said, talk.stream
        talk.put("before")
        talk.refused("split at the edge", "split_shard", StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="0")
        kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
        talk.wait_active()
        low, high = "shardId-000000000001", "shardId-000000000002"
        talk.put("low")
        talk.put("high", HALF)
        said["each record in one shard"] = [talk.read("TRIM_HORIZON", shard) for shard in (FIRST, low, high)]
        said["parent's end"] = parents_end(talk)
        split = {"StreamName": stream, "ShardToSplit": FIRST, "NewStartingHashKey": "1000"}
        talk.refused("split a closed shard", "split_shard", **split)
        kinesis.merge_shards(StreamName=stream, ShardToMerge=low, AdjacentShardToMerge=high)
        talk.wait_active()
        talk.put("merged")
        said["after the merge"] = talk.read("TRIM_HORIZON", "shardId-000000000003")
        said["family"] = [family(shard) for shard in kinesis.list_shards(StreamName=stream)["Shards"]]
        said.update(filters(talk))
        said["numbers grow over generations"] = generations_grow(kinesis.list_shards(StreamName=stream)["Shards"])
    return said


def parents_end(talk: Talk) -> object:
    """Read the first shard until it has no next iterator; how the last answers are cut is not compared."""
    iterator, seen = talk.iterator("TRIM_HORIZON"), []
    for _ in range(5):
        answer = talk.kinesis.get_records(ShardIterator=iterator)
        seen += texts(answer)
        if not answer.get("NextShardIterator"):
            return [seen, answer["ChildShards"]]
        iterator = answer["NextShardIterator"]
    return [seen, "never ended"]


def family(shard: dict[str, Any]) -> tuple[Any, ...]:
    closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
    return shard["ShardId"], shard.get("ParentShardId"), shard.get("AdjacentParentShardId"), closed


def generations_grow(shards: list[dict[str, Any]]) -> bool:
    by_id = {shard["ShardId"]: shard["SequenceNumberRange"] for shard in shards}
    pairs = [(by_id[s["ParentShardId"]], s["SequenceNumberRange"]) for s in shards if s.get("ParentShardId") in by_id]
    return all(int(old["EndingSequenceNumber"]) < int(new["StartingSequenceNumber"]) for old, new in pairs)


def filters(talk: Talk) -> Answers:
    """Show shards through every filter that needs no waiting."""
    kinds: dict[str, dict[str, Any]] = {
        "AT_TRIM_HORIZON": {},
        "FROM_TRIM_HORIZON": {},
        "AT_LATEST": {},
        "AFTER_SHARD_ID": {"ShardId": SECOND},
    }
    return {kind: talk.shards(ShardFilter={"Type": kind, **more}) for kind, more in kinds.items()}


def recounting(kinesis: Any) -> Answers:
    """Double and halve a stream by UpdateShardCount."""
    with talking(kinesis, 2) as talk:
        talk.put("kept")
        for step, target in (("doubled", 4), ("halved", 2)):
            kinesis.update_shard_count(StreamName=talk.stream, TargetShardCount=target, ScalingType="UNIFORM_SCALING")
            talk.wait_active()
            shards = kinesis.list_shards(StreamName=talk.stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
            talk.said[step] = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in shards)
        talk.said["kept"] = talk.read("TRIM_HORIZON", FIRST)
    return talk.said


def subscribing(kinesis: Any) -> Answers:
    """Subscribe: backlog, live push, heartbeat, the 5 s rule, take-over and the end of a shard."""
    with talking(kinesis, 1) as talk:
        said = talk.said
        arn = talk.summary()["StreamARN"]
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]["ConsumerARN"]
        talk.wait_consumer(consumer)
        start = {"ConsumerARN": consumer, "ShardId": FIRST, "StartingPosition": {"Type": "TRIM_HORIZON"}}
        talk.refused("unknown consumer", "subscribe_to_shard", **{**start, "ConsumerARN": consumer + "0"})
        talk.put("backlog")
        events = kinesis.subscribe_to_shard(**start)["EventStream"]
        stream = iter(events)
        backlog = next(stream)["SubscribeToShardEvent"]
        said["backlog"] = [texts(backlog), backlog["MillisBehindLatest"], "ChildShards" in backlog]
        last = talk.put("live")
        live = next(stream)["SubscribeToShardEvent"]
        said["live"] = [texts(live), int(live["ContinuationSequenceNumber"]) >= int(last)]
        talk.refused("again within 5 s", "subscribe_to_shard", **start)
        began = time.monotonic()
        heartbeat = next(stream)["SubscribeToShardEvent"]
        said["heartbeat"] = [texts(heartbeat), round(time.monotonic() - began)]
        said.update(taken_over(talk, start, stream, heartbeat["ContinuationSequenceNumber"]))
        events.close()
    return said


def taken_over(talk: Talk, start: dict[str, Any], former: Iterator[Any], continuation: str) -> Answers:
    """Subscribe a second time after 5 s, after the first one's continuation, and split the shard."""
    time.sleep(0.2)
    position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": continuation}
    events = talk.kinesis.subscribe_to_shard(**{**start, "StartingPosition": position})["EventStream"]
    try:
        end_of_former: object = [texts(event["SubscribeToShardEvent"]) for event in former]
    except ClientError as error:
        end_of_former = error.response["Error"]["Code"]
    talk.put("after the take-over")
    stream = iter(events)
    seen = texts(next(stream)["SubscribeToShardEvent"])
    talk.kinesis.split_shard(StreamName=talk.stream, ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
    *_, last = [event["SubscribeToShardEvent"] for event in stream]
    events.close()
    children = [child["ShardId"] for child in last["ChildShards"]]
    return {
        "the former one ends with": end_of_former,
        "the new one goes on with": seen,
        "the shard ends with": [children, last.get("ContinuationSequenceNumber")],
    }


# --- comparing

DIFFERENCES: dict[tuple[str, str], set[str]] = {}

CONVERSATIONS: list[tuple[str, Callable[[Any], Answers]]] = [
    ("moto", polling),
    ("moto", registration),
    ("kinesis_local", polling),
    ("kinesis_local", listing),
    ("kinesis_local", registration),
    ("kinesis_local", resharding),
    ("kinesis_local", recounting),
    ("ministack", polling),
    ("ministack", registration),
    ("ministack", subscribing),
]


@pytest.mark.parametrize(
    ("server", "conversation"),
    CONVERSATIONS,
    ids=[f"{server}-{conversation.__name__}" for server, conversation in CONVERSATIONS],
)
def test_a_conversation_goes_the_same_way(
    ours: Any, foreign: Callable[[str], Any], server: str, conversation: Callable[[Any], Answers]
):
    theirs = conversation(foreign(server))
    mine = conversation(ours)
    assert mine.keys() == theirs.keys()
    differing = {step: (mine[step], theirs[step]) for step in mine if mine[step] != theirs[step]}
    known = DIFFERENCES.get((server, conversation.__name__), set())
    assert differing.keys() == known, {"unknown": {k: v for k, v in differing.items() if k not in known}}


def test_every_known_difference_stands_in_the_reference():
    page = (Path(__file__).parents[4] / "docs/reference/embedded-endpoint.md").read_text()
    missing = [
        (server, step)
        for (server, _), steps in DIFFERENCES.items()
        for step in steps
        if f"| {server} | {step} |" not in page
    ]
    assert missing == []
