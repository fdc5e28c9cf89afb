"""npm kinesis-local and ours agree on splits, merges and changes of the shard count."""

from typing import Any

import pytest

from servers.kinesis_conversation import FIRST, Conversation, Responses, compare, open_conversation, texts

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]

HALF = 1 << 127


def test_kinesis_local_agrees_on_resharding(ours: Any, kinesis_local: Any):
    known = {"split a closed shard", "split at the edge", "AT_TRIM_HORIZON"}
    compare("kinesis_local", resharding(ours), resharding(kinesis_local), known)


def test_kinesis_local_agrees_on_updating_the_shard_count(ours: Any, kinesis_local: Any):
    compare("kinesis_local", updating_shard_count(ours), updating_shard_count(kinesis_local), {"doubled", "halved"})


def resharding(kinesis: Any) -> Responses:
    """Split and merge, and read parents to their end."""
    with open_conversation(kinesis, 1) as conversation:
        responses, stream = conversation.responses, conversation.stream
        conversation.put("before")
        conversation.reshard("split_shard", ShardToSplit=FIRST, NewStartingHashKey=str(HALF))
        low, high = "shardId-000000000001", "shardId-000000000002"
        conversation.put("low")
        conversation.put("high", HALF)
        responses["each record in one shard"] = [
            conversation.read("TRIM_HORIZON", shard) for shard in (FIRST, low, high)
        ]
        responses["parent's end"] = parents_end(conversation)
        split = {"StreamName": stream, "ShardToSplit": FIRST, "NewStartingHashKey": "1000"}
        conversation.refused("split a closed shard", "split_shard", **split)
        conversation.reshard("merge_shards", ShardToMerge=low, AdjacentShardToMerge=high)
        conversation.put("merged")
        responses["after the merge"] = conversation.read("TRIM_HORIZON", "shardId-000000000003")
        responses["family"] = [lineage(shard) for shard in kinesis.list_shards(StreamName=stream)["Shards"]]
        responses.update(filters(conversation))
        edge = {"StreamName": stream, "ShardToSplit": "shardId-000000000003", "NewStartingHashKey": "0"}
        responses["numbers grow over generations"] = generations_grow(kinesis.list_shards(StreamName=stream)["Shards"])
        conversation.refused("split at the edge", "split_shard", **edge)
    return responses


def parents_end(conversation: Conversation) -> object:
    """Read the first shard until it has no next iterator; how records are divided between responses is not compared."""
    iterator, seen = conversation.iterator("TRIM_HORIZON"), []
    for _ in range(5):
        response = conversation.kinesis.get_records(ShardIterator=iterator)
        seen += texts(response)
        if not response.get("NextShardIterator"):
            return [seen, response["ChildShards"]]
        iterator = response["NextShardIterator"]
    return [seen, "no end after five reads"]


def lineage(shard: dict[str, Any]) -> tuple[Any, ...]:
    closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
    return shard["ShardId"], shard.get("ParentShardId"), shard.get("AdjacentParentShardId"), closed


def generations_grow(shards: list[dict[str, Any]]) -> bool:
    by_id = {shard["ShardId"]: shard["SequenceNumberRange"] for shard in shards}
    pairs = [(by_id[s["ParentShardId"]], s["SequenceNumberRange"]) for s in shards if s.get("ParentShardId") in by_id]
    return all(int(old["EndingSequenceNumber"]) < int(new["StartingSequenceNumber"]) for old, new in pairs)


def filters(conversation: Conversation) -> Responses:
    """Show shards through every filter that needs no waiting."""
    kinds: dict[str, dict[str, Any]] = {
        "AT_TRIM_HORIZON": {},
        "FROM_TRIM_HORIZON": {},
        "AT_LATEST": {},
        "AFTER_SHARD_ID": {"ShardId": "shardId-000000000001"},
    }
    return {kind: conversation.shards(ShardFilter={"Type": kind, **more}) for kind, more in kinds.items()}


def updating_shard_count(kinesis: Any) -> Responses:
    """Double and halve a stream by UpdateShardCount."""
    with open_conversation(kinesis, 2) as conversation:
        conversation.put("kept")
        for step, target in (("doubled", 4), ("halved", 2)):
            kinesis.update_shard_count(
                StreamName=conversation.stream, TargetShardCount=target, ScalingType="UNIFORM_SCALING"
            )
            conversation.wait_active()
            shards = kinesis.list_shards(StreamName=conversation.stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
            conversation.responses[step] = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in shards)
        conversation.responses["kept"] = conversation.read("TRIM_HORIZON", FIRST)
    return conversation.responses
