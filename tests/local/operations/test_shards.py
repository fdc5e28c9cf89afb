import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.api_errors import ApiError


def ids(answer) -> list[str]:
    return [shard["ShardId"][-2:] for shard in answer["Shards"]]


@pytest.fixture(autouse=True)
def orders(ask) -> None:
    ask("CreateStream", StreamName="orders", ShardCount=5)


def test_pages_are_continued_by_the_token_alone(ask):
    first = ask("ListShards", StreamName="orders", MaxResults=2)
    second = ask("ListShards", NextToken=first["NextToken"], MaxResults=2)
    third = ask("ListShards", NextToken=second["NextToken"], MaxResults=2)
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
def test_a_token_never_comes_with_what_it_stands_for(ask, extra):
    token = ask("ListShards", StreamName="orders", MaxResults=2)["NextToken"]
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("ListShards", NextToken=token, **extra)


def test_a_token_lives_for_300_seconds(ask, clock: ManualClock):
    token = ask("ListShards", StreamName="orders", MaxResults=2)["NextToken"]
    clock.advance(299_999)
    ask("ListShards", NextToken=token)
    clock.advance(1)
    with pytest.raises(ApiError, match="ExpiredNextTokenException"):
        ask("ListShards", NextToken=token)


def test_a_made_up_token_is_refused(ask):
    iterator = ask(
        "GetShardIterator",
        StreamName="orders",
        ShardId="shardId-000000000000",
        ShardIteratorType="LATEST",
    )["ShardIterator"]
    for token in ("garbage", "AAAA", iterator):
        with pytest.raises(ApiError, match="InvalidArgumentException"):
            ask("ListShards", NextToken=token)


def test_a_filter_goes_on_over_pages(ask):
    after = {"Type": "AFTER_SHARD_ID", "ShardId": "shardId-000000000001"}
    first = ask("ListShards", StreamName="orders", MaxResults=2, ShardFilter=after)
    second = ask("ListShards", NextToken=first["NextToken"])
    assert ids(first) + ids(second) == ["02", "03", "04"]


def test_listing_may_start_after_a_shard(ask):
    assert ids(ask("ListShards", StreamName="orders", ExclusiveStartShardId="shardId-000000000002")) == ["03", "04"]


def test_an_unknown_stream_is_not_found(ask):
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        ask("ListShards", StreamName="nobody")
