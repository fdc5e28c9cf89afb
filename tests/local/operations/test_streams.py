import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.account import Account

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def test_a_stream_is_described_by_name_or_arn(ask):
    ask("CreateStream", StreamName="orders", ShardCount=3)
    by_name = ask("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    by_arn = ask("DescribeStreamSummary", StreamARN=ARN)["StreamDescriptionSummary"]
    assert by_name == by_arn
    assert by_name["StreamARN"] == ARN
    assert (by_name["StreamStatus"], by_name["OpenShardCount"], by_name["ConsumerCount"]) == ("ACTIVE", 3, 0)


def test_a_name_and_an_arn_must_be_of_one_stream(ask):
    ask("CreateStream", StreamName="other", ShardCount=1)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("DescribeStreamSummary", StreamName="other", StreamARN=ARN)


def test_a_stream_of_another_region_is_not_found(ask):
    ask("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        ask("DescribeStreamSummary", StreamARN=ARN.replace("us-east-1", "eu-west-1"))


def test_a_name_is_taken_once(ask):
    ask("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        ask("CreateStream", StreamName="orders", ShardCount=1)


@pytest.mark.parametrize("fields", [{}, {"StreamName": "no spaces"}, {"StreamName": "s", "ShardCount": 0}])
def test_a_bad_stream_is_a_validation_error(ask, fields):
    with pytest.raises(ApiError, match="ValidationException"):
        ask("CreateStream", **fields)


def test_a_deleted_stream_is_gone_and_its_name_free(ask):
    ask("CreateStream", StreamName="orders", ShardCount=1)
    ask("DeleteStream", StreamName="orders")
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        ask("DescribeStreamSummary", StreamName="orders")
    ask("CreateStream", StreamName="orders", ShardCount=2)


def test_a_stream_with_consumers_is_deleted_only_by_force(ask):
    ask("CreateStream", StreamName="orders", ShardCount=1)
    ask("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    with pytest.raises(ApiError, match="ResourceInUseException"):
        ask("DeleteStream", StreamName="orders")
    ask("DeleteStream", StreamName="orders", EnforceConsumerDeletion=True)


def test_describe_stream_shows_a_hundred_shards_a_page(ask):
    ask("CreateStream", StreamName="orders", ShardCount=130)
    first = ask("DescribeStream", StreamName="orders", Limit=1000)["StreamDescription"]
    last_id = first["Shards"][-1]["ShardId"]
    second = ask("DescribeStream", StreamName="orders", ExclusiveStartShardId=last_id)["StreamDescription"]
    assert (len(first["Shards"]), first["HasMoreShards"]) == (100, True)
    assert (len(second["Shards"]), second["HasMoreShards"]) == (30, False)


def test_streams_are_listed_by_name_page_by_page(ask):
    for name in ("c", "a", "b"):
        ask("CreateStream", StreamName=name, ShardCount=1)
    first = ask("ListStreams", Limit=2)
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    second = ask("ListStreams", NextToken=first["NextToken"])
    assert (second["StreamNames"], second["HasMoreStreams"]) == (["c"], False)
    assert ask("ListStreams", ExclusiveStartStreamName="b")["StreamNames"] == ["c"]
    assert second["StreamSummaries"][0]["StreamStatus"] == "ACTIVE"


def test_a_creating_stream_is_seen_but_not_usable(clock: ManualClock):
    account = Account(clock, "us-east-1", Delays(create_stream=50), None)
    account.create_stream("orders", 1)
    assert account.find("orders").status == "CREATING"
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        account.usable("orders")
    clock.advance(50)
    account.usable("orders")


def test_retention_grows_and_shrinks_within_its_bounds(ask):
    ask("CreateStream", StreamName="orders", ShardCount=1)
    ask("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=48)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=24)
    ask("DecreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=24)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("DecreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=23)
