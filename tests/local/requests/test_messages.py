"""The texts of errors that are raised after a request was found valid: in the service's words where they are known."""

import pytest

from recordpublisher.local.api_errors import ApiError

STREAM = {"StreamName": "orders"}
UNDER = "orders under account 000000000000"
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
FIRST = {**STREAM, "ShardId": "shardId-000000000000"}
EITHER = (
    "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
    "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber."
)
RETENTION = (
    "Requested retention period ({} hours) for stream orders can not be {} than existing retention period ({} hours). "
)


@pytest.mark.parametrize(
    ("operation", "fields", "expected"),
    [
        (
            "IncreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 20},
            "Minimum allowed retention period is 24 hours. Requested retention period (20 hours) is too short.",
        ),
        (
            "DecreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 9999},
            "Maximum allowed retention period is 8760 hours. Requested retention period (9999 hours) is too long.",
        ),
        (
            "IncreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 25},
            RETENTION.format(25, "shorter", 30) + "Use DecreaseRetentionPeriod API.",
        ),
        (
            "DecreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 40},
            RETENTION.format(40, "longer", 30) + "Use IncreaseRetentionPeriod API.",
        ),
        (
            "SplitShard",
            {"ShardToSplit": "unknown", "NewStartingHashKey": "1"},
            f"Could not find shard unknown in stream {UNDER}.",
        ),
        (
            "MergeShards",
            {"ShardToMerge": "shardId-000000000000", "AdjacentShardToMerge": "unknown"},
            f"Could not find shard unknown in stream {UNDER}.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "LATEST", "StartingSequenceNumber": "5"},
            f"{EITHER} Request specified LATEST and also a StartingSequenceNumber.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "AT_SEQUENCE_NUMBER"},
            f"{EITHER} Request specified AT_SEQUENCE_NUMBER and no StartingSequenceNumber.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "AT_TIMESTAMP"},
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter.",
        ),
        (
            "PutRecord",
            {"Data": "eA=="},
            "1 validation error detected: Value null at 'partitionKey' failed to satisfy constraint: Member must not be null",
        ),
        (
            "PutRecords",
            {"Records": [{"Data": "eA==", "PartitionKey": "k"}, {"Data": "AAAA" * 349526, "PartitionKey": "k"}]},
            "1 validation error detected: Value 'java.nio.HeapByteBuffer[pos=0 lim=1048578 cap=1048578]' at "
            "'records.2.member.data' failed to satisfy constraint: Member must have length less than or equal to 1048576",
        ),
        (
            "DeleteResourcePolicy",
            {"StreamName": None, "ResourceARN": ARN},
            f"No resource policy found for resource ARN {ARN}.",
        ),
        (
            "DescribeStreamConsumer",
            {"StreamName": None, "ConsumerARN": f"{ARN}/consumer/c:1"},
            f"Consumer {ARN}/consumer/c:1, account 000000000000 not found.",
        ),
        (
            "DescribeStreamConsumer",
            {"StreamName": None, "ConsumerARN": ARN},
            f"Consumer {ARN}, account 000000000000 not found.",
        ),
    ],
)
def test_the_text_is_the_services(call, operation, fields, expected):
    call("CreateStream", **STREAM, ShardCount=1)
    call("IncreaseStreamRetentionPeriod", **STREAM, RetentionPeriodHours=30)
    with pytest.raises(ApiError) as raised:
        call(operation, **{**STREAM, **fields})
    assert raised.value.message == expected


def test_a_stream_on_demand_is_not_resharded(call):
    call("CreateStream", **STREAM, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    with pytest.raises(ApiError) as raised:
        call("UpdateShardCount", **STREAM, TargetShardCount=8, ScalingType="UNIFORM_SCALING")
    expected = f"ValidationException: Request is invalid. Stream {UNDER} is in On-Demand mode."
    assert str(raised.value) == expected


def test_a_stream_that_changes_is_in_use(call, account, clock):
    call("CreateStream", **STREAM, ShardCount=1)
    account.find("orders").set_busy("UPDATING", 1000)
    with pytest.raises(ApiError) as raised:
        call("SplitShard", **STREAM, ShardToSplit="0", NewStartingHashKey="1000")
    assert str(raised.value) == f"ResourceInUseException: Stream {UNDER} not ACTIVE, instead in state UPDATING"


def test_an_expired_iterator_shows_its_times(call, clock):
    call("CreateStream", **STREAM, ShardCount=1)
    iterator = call("GetShardIterator", **FIRST, ShardIteratorType="LATEST")["ShardIterator"]
    clock.advance(300_000)
    with pytest.raises(ApiError) as raised:
        call("GetRecords", ShardIterator=iterator)
    assert raised.value.message == (
        "Iterator expired. The iterator was created at time Tue Nov 14 22:13:20 UTC 2023 while right now it is "
        "Tue Nov 14 22:18:20 UTC 2023 which is further in the future than the tolerated delay of 300000 milliseconds."
    )
