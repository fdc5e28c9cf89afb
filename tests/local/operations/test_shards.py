import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.errors import ApiError


def ids(response) -> list[str]:
    return [shard["ShardId"][-2:] for shard in response["Shards"]]


@pytest.fixture(autouse=True)
def orders(call) -> None:
    call("CreateStream", StreamName="orders", ShardCount=5)


def test_pages_are_continued_by_the_token_alone(call):
    first = call("ListShards", StreamName="orders", MaxResults=2)
    second = call("ListShards", NextToken=first["NextToken"], MaxResults=2)
    third = call("ListShards", NextToken=second["NextToken"], MaxResults=2)
    assert [ids(first), ids(second), ids(third)] == [["00", "01"], ["02", "03"], ["04"]]
    assert "NextToken" not in third


@pytest.mark.parametrize(
    "extra",
    [
        {"StreamName": "orders"},
        {"ExclusiveStartShardId": "shardId-000000000001"},
        {"StreamCreationTimestamp": 1},
        {"ShardFilter": {"Type": "AT_LATEST"}},
    ],
)
def test_a_token_and_the_fields_that_it_replaces_are_refused_together(call, extra):
    token = call("ListShards", StreamName="orders", MaxResults=2)["NextToken"]
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("ListShards", NextToken=token, **extra)


def test_a_token_is_valid_for_300_seconds(call, clock: ManualClock):
    token = call("ListShards", StreamName="orders", MaxResults=2)["NextToken"]
    clock.advance(299_999)
    call("ListShards", NextToken=token)
    clock.advance(1)
    with pytest.raises(ApiError, match="ExpiredNextTokenException"):
        call("ListShards", NextToken=token)


def test_an_unknown_token_is_refused(call):
    iterator = call(
        "GetShardIterator",
        StreamName="orders",
        ShardId="shardId-000000000000",
        ShardIteratorType="LATEST",
    )["ShardIterator"]
    for token in ("garbage", "AAAA", iterator):
        with pytest.raises(ApiError, match="InvalidArgumentException"):
            call("ListShards", NextToken=token)


def test_a_filter_applies_to_every_page(call):
    after = {"Type": "AFTER_SHARD_ID", "ShardId": "shardId-000000000001"}
    first = call("ListShards", StreamName="orders", MaxResults=2, ShardFilter=after)
    second = call("ListShards", NextToken=first["NextToken"])
    assert ids(first) + ids(second) == ["02", "03", "04"]


def test_listing_may_start_after_a_shard(call):
    assert ids(call("ListShards", StreamName="orders", ExclusiveStartShardId="shardId-000000000002")) == ["03", "04"]


def test_an_unknown_stream_is_not_found(call):
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("ListShards", StreamName="missing")


def test_a_page_has_a_thousand_shards_at_most(call):
    call("CreateStream", StreamName="wide", ShardCount=1_001)
    page = call("ListShards", StreamName="wide", MaxResults=5_000)
    assert len(page["Shards"]) == 1_000
    assert len(call("ListShards", NextToken=page["NextToken"])["Shards"]) == 1
