import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.errors import ApiError


def open_ranges(call) -> int:
    return len(call("ListShards", StreamName="orders", ShardFilter={"Type": "AT_LATEST"})["Shards"])


def test_shards_are_split_and_merged_and_their_count_is_updated(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    call("SplitShard", StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey="1000")
    assert open_ranges(call) == 2
    pair = {"ShardToMerge": "shardId-000000000001", "AdjacentShardToMerge": "shardId-000000000002"}
    call("MergeShards", StreamName="orders", **pair)
    assert open_ranges(call) == 1
    response = call("UpdateShardCount", StreamName="orders", TargetShardCount=2, ScalingType="UNIFORM_SCALING")
    assert (response["CurrentShardCount"], response["TargetShardCount"]) == (1, 2)
    assert open_ranges(call) == 2


def test_a_shard_is_merged_with_the_one_after_it_not_with_the_one_before(call):
    call("CreateStream", StreamName="orders", ShardCount=2)
    with pytest.raises(ApiError, match=r"InvalidArgumentException: Shards .* are not an adjacent pair"):
        call("MergeShards", StreamName="orders", ShardToMerge="shardId-1", AdjacentShardToMerge="shardId-0")


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("UpdateShardCount", {"TargetShardCount": 3, "ScalingType": "UNIFORM_SCALING"}),
        ("SplitShard", {"ShardToSplit": "shardId-0", "NewStartingHashKey": "1000"}),
        ("MergeShards", {"ShardToMerge": "shardId-0", "AdjacentShardToMerge": "shardId-1"}),
    ],
)
def test_the_shards_of_an_on_demand_stream_cannot_be_changed(call, operation, fields):
    call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    with pytest.raises(ApiError, match="ValidationException"):
        call(operation, StreamName="orders", **fields)


def test_a_stream_that_is_updating_cannot_be_changed(clock: ManualClock):
    account = Account(clock, "us-east-1", Delays(reshard=1000), None)
    stream = account.create_stream("orders", 1)
    stream.set_busy("UPDATING", 1000)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        stream.require_active()
    assert account.find_usable("orders") is stream
    clock.advance(1000)
    stream.require_active()
