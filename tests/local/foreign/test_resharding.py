"""npm kinesis-local and ours agree on splitting, merging and re-counting shards."""

from typing import Any

import pytest

from servers.kinesis_conversation import FIRST, Answers, Talk, compare, talking, texts

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

HALF = 1 << 127


def test_kinesis_local_agrees_on_resharding(ours: Any, kinesis_local: Any):
    known = {"split a closed shard", "split at the edge", "AT_TRIM_HORIZON"}
    compare("kinesis_local", resharding(ours), resharding(kinesis_local), known)


def test_kinesis_local_agrees_on_recounting(ours: Any, kinesis_local: Any):
    compare("kinesis_local", recounting(ours), recounting(kinesis_local), {"doubled", "halved"})


def resharding(kinesis: Any) -> Answers:
    """Split and merge, and read parents to their end."""
    with talking(kinesis, 1) as talk:
        said, stream = talk.said, talk.stream
        talk.put("before")
        talk.reshard("split_shard", ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
        low, high = "shardId-000000000001", "shardId-000000000002"
        talk.put("low")
        talk.put("high", HALF)
        said["each record in one shard"] = [talk.read("TRIM_HORIZON", shard) for shard in (FIRST, low, high)]
        said["parent's end"] = parents_end(talk)
        split = {"StreamName": stream, "ShardToSplit": FIRST, "NewStartingHashKey": "1000"}
        talk.refused("split a closed shard", "split_shard", **split)
        talk.reshard("merge_shards", ShardToMerge=low, AdjacentShardToMerge=high)
        talk.put("merged")
        said["after the merge"] = talk.read("TRIM_HORIZON", "shardId-000000000003")
        said["family"] = [family(shard) for shard in kinesis.list_shards(StreamName=stream)["Shards"]]
        said.update(filters(talk))
        edge = {"StreamName": stream, "ShardToSplit": "shardId-000000000003", "NewStartingHashKey": "0"}
        said["numbers grow over generations"] = generations_grow(kinesis.list_shards(StreamName=stream)["Shards"])
        talk.refused("split at the edge", "split_shard", **edge)
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
        "AFTER_SHARD_ID": {"ShardId": "shardId-000000000001"},
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
