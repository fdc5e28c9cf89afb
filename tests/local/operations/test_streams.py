import json

import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def test_a_stream_is_described_by_name_or_arn(call):
    call("CreateStream", StreamName="orders", ShardCount=3)
    by_name = call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    by_arn = call("DescribeStreamSummary", StreamARN=ARN)["StreamDescriptionSummary"]
    assert by_name == by_arn
    assert by_name["StreamARN"] == ARN
    assert (by_name["StreamStatus"], by_name["OpenShardCount"], by_name["ConsumerCount"]) == ("ACTIVE", 3, 0)


def test_name_and_arn_must_be_of_the_same_stream(call):
    call("CreateStream", StreamName="other", ShardCount=1)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("DescribeStreamSummary", StreamName="other", StreamARN=ARN)


def test_a_stream_of_another_region_is_not_found(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("DescribeStreamSummary", StreamARN=ARN.replace("us-east-1", "eu-west-1"))


def test_a_stream_name_can_be_used_once(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        call("CreateStream", StreamName="orders", ShardCount=1)


@pytest.mark.parametrize("fields", [{}, {"StreamName": "no spaces"}, {"StreamName": "s", "ShardCount": 0}])
def test_an_invalid_stream_is_a_validation_error(call, fields):
    with pytest.raises(ApiError, match="ValidationException"):
        call("CreateStream", **fields)


def test_a_deleted_stream_does_not_exist_and_its_name_can_be_used_again(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    call("DeleteStream", StreamName="orders")
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("DescribeStreamSummary", StreamName="orders")
    call("CreateStream", StreamName="orders", ShardCount=2)


def test_a_stream_with_consumers_is_deleted_only_by_force(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    with pytest.raises(ApiError, match="ResourceInUseException"):
        call("DeleteStream", StreamName="orders")
    call("DeleteStream", StreamName="orders", EnforceConsumerDeletion=True)


def test_describe_stream_shows_a_hundred_shards_a_page(call):
    call("CreateStream", StreamName="orders", ShardCount=130)
    first = call("DescribeStream", StreamName="orders", Limit=1000)["StreamDescription"]
    last_id = first["Shards"][-1]["ShardId"]
    second = call("DescribeStream", StreamName="orders", ExclusiveStartShardId=last_id)["StreamDescription"]
    assert (len(first["Shards"]), first["HasMoreShards"]) == (100, True)
    assert (len(second["Shards"]), second["HasMoreShards"]) == (30, False)


def test_streams_are_listed_by_name_page_by_page(call):
    for name in ("c", "a", "b"):
        call("CreateStream", StreamName=name, ShardCount=1)
    first = call("ListStreams", Limit=2)
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    second = call("ListStreams", NextToken=first["NextToken"])
    assert (second["StreamNames"], second["HasMoreStreams"]) == (["c"], False)
    assert call("ListStreams", ExclusiveStartStreamName="b")["StreamNames"] == ["c"]
    assert second["StreamSummaries"][0]["StreamStatus"] == "ACTIVE"


def test_a_creating_stream_is_listed_but_cannot_be_used(clock: ManualClock):
    account = Account(clock, "us-east-1", Delays(create_stream=50), None)
    account.create_stream("orders", 1)
    assert account.find("orders").status == "CREATING"
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        account.find_usable("orders")
    clock.advance(50)
    account.find_usable("orders")


def test_a_stream_that_is_deleted_while_it_is_created_never_shows_shards(clock: ManualClock):
    account = Account(clock, "us-east-1", Delays(create_stream=50, delete_stream=100), None)
    account.create_stream("orders", 1)
    OPERATIONS["DeleteStream"](account, b'{"StreamName":"orders"}')
    clock.advance(60)
    described = json.loads(OPERATIONS["DescribeStream"](account, b'{"StreamName":"orders"}'))["StreamDescription"]
    assert (described["StreamStatus"], described["Shards"]) == ("DELETING", [])


def test_the_retention_period_is_changed_within_its_bounds(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    call("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=48)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=24)
    call("DecreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=24)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("DecreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=23)


def test_with_auto_distribution_records_go_to_the_shards_round_robin(call, account):
    call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    described = call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    assert described["RecordDistributionStrategy"] == "USER_PARTITION_KEY"
    same_key = {"Data": "eA==", "PartitionKey": "k"}
    before = call("PutRecords", StreamName="orders", Records=[same_key] * 4)["Records"]
    call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, RecordDistributionStrategy="AUTO")
    after = call("PutRecords", StreamName="orders", Records=[same_key] * 4)["Records"]
    assert [len({record["ShardId"] for record in records}) for records in (before, after)] == [1, 2]
    described = call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    assert described["RecordDistributionStrategy"] == "AUTO"
    call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, RecordDistributionStrategy="USER_PARTITION_KEY")
    again = call("PutRecords", StreamName="orders", Records=[same_key] * 4)["Records"]
    assert {record["ShardId"] for record in again} == {record["ShardId"] for record in before}


def test_a_provisioned_stream_has_no_auto_distribution(call):
    call("CreateStream", StreamName="orders", ShardCount=2)
    assert (
        "RecordDistributionStrategy"
        not in call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    )
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, RecordDistributionStrategy="AUTO")


def test_a_stream_is_created_with_auto_distribution(call):
    on_demand = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "RecordDistributionStrategy": "AUTO"}
    call("CreateStream", StreamName="orders", ShardCount=2, **on_demand)
    described = call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]
    assert described["RecordDistributionStrategy"] == "AUTO"
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("CreateStream", StreamName="other", RecordDistributionStrategy="AUTO")
    assert call("ListStreams")["StreamNames"] == ["orders"]


@pytest.mark.parametrize("key", [{}, {"ExplicitHashKey": "9" * 39}, {"PartitionKey": "k"}], ids=repr)
def test_with_auto_distribution_the_partition_key_is_optional_and_every_hash_key_is_ignored(call, account, key):
    on_demand = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "RecordDistributionStrategy": "AUTO"}
    call("CreateStream", StreamName="orders", ShardCount=1, **on_demand)
    call("PutRecords", StreamName="orders", Records=[{"Data": "eA==", **key}])
    call("PutRecord", StreamName="orders", Data="eQ==", **key)
    start = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = call("GetShardIterator", StreamName="orders", **start)["ShardIterator"]
    read = call("GetRecords", ShardIterator=iterator)["Records"]
    assert [(record["Data"], record.get("PartitionKey")) for record in read] == [
        ("eA==", key.get("PartitionKey")),
        ("eQ==", key.get("PartitionKey")),
    ]


@pytest.mark.parametrize("api", ["PutRecord", "PutRecords"])
def test_where_keys_decide_a_record_without_a_partition_key_is_refused(call, api):
    call("CreateStream", StreamName="orders", ShardCount=1)
    record = {"Data": "eA=="}
    with pytest.raises(ApiError, match=r"ValidationException.*partitionKey"):
        call(api, StreamName="orders", **(record if api == "PutRecord" else {"Records": [record]}))


def test_a_stream_that_is_missing_is_named_in_the_error_also_when_asked_for_by_arn(call):
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/wrong"
    with pytest.raises(ApiError, match="Stream wrong under account 000000000000 not found"):
        call("DescribeStream", StreamARN=arn)


def test_a_page_has_a_hundred_streams_at_most(call):
    for number in range(101):
        call("CreateStream", StreamName=f"s{number:03}", ShardCount=1)
    page = call("ListStreams", Limit=1_000)
    assert (len(page["StreamNames"]), page["HasMoreStreams"]) == (100, True)


def test_records_that_a_shorter_retention_removed_do_not_come_back(call, account, clock):
    call("CreateStream", StreamName="orders", ShardCount=1)
    call("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=72)
    account.find("orders").put(b"old", "key")
    clock.advance(30 * 3_600_000)

    call("DecreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=24)
    call("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=72)

    assert [len(shard.log) for shard in account.find("orders").shards.values()] == [0]


def test_a_timestamp_beyond_the_range_of_a_double_is_an_invalid_argument(call):
    call("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("ListShards", StreamName="orders", ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": 1e306})
