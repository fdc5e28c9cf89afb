"""A conversation that calls every operation of the endpoint, with whatever client: `call("CreateStream", StreamName=...)` answers.

As a program, in an environment with today's boto3: `python tests/servers/sdk/every_operation.py URL`.
"""

import sys
from collections.abc import Callable
from typing import Any

Call = Callable[..., dict[str, Any]]
NAME = "everything"
ON_DEMAND = {"StreamMode": "ON_DEMAND"}


def converse(call: Call) -> None:
    """Call each of them once at least, on streams that are made and deleted here. Delays of consumers and queues must be 0."""
    provisioned(call)
    call("CreateStream", StreamName=NAME, ShardCount=1, StreamModeDetails=ON_DEMAND, Tags={"team": "a"})
    arn = call("DescribeStream", StreamName=NAME)["StreamDescription"]["StreamARN"]
    settings(call, arn)
    consumer(call, arn)
    queue(call, arn)
    call("DeleteStream", StreamARN=arn)


def provisioned(call: Call) -> None:
    name = "provisioned"
    call("CreateStream", StreamName=name, ShardCount=2)
    arn = call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    assert name in call("ListStreams", Limit=10)["StreamNames"]
    call("PutRecord", StreamARN=arn, Data=b"one", PartitionKey="k", ExplicitHashKey="0")
    assert call("PutRecords", StreamARN=arn, Records=[{"Data": b"two", "PartitionKey": "k"}])["FailedRecordCount"] == 0
    shard = call("ListShards", StreamARN=arn)["Shards"][0]["ShardId"]
    start = {"StreamARN": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = call("GetShardIterator", **start)["ShardIterator"]
    assert call("GetRecords", ShardIterator=iterator, StreamARN=arn)["Records"][0]["Data"] == b"one"
    call("SplitShard", StreamARN=arn, ShardToSplit=shard, NewStartingHashKey="1000")
    call("MergeShards", StreamARN=arn, ShardToMerge="shardId-000000000002", AdjacentShardToMerge="shardId-000000000003")
    call("UpdateShardCount", StreamARN=arn, TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    call("IncreaseStreamRetentionPeriod", StreamARN=arn, RetentionPeriodHours=48)
    call("DecreaseStreamRetentionPeriod", StreamARN=arn, RetentionPeriodHours=24)
    call("UpdateMaxRecordSize", StreamARN=arn, MaxRecordSizeInKiB=2048)
    call("UpdateStreamMode", StreamARN=arn, StreamModeDetails=ON_DEMAND)
    call("DeleteStream", StreamARN=arn)


def settings(call: Call, arn: str) -> None:
    assert call("DescribeLimits")["OnDemandStreamCount"] == 1
    call("UpdateStreamRecordDistributionStrategy", StreamARN=arn, RecordDistributionStrategy="AUTO")
    call("StartStreamEncryption", StreamARN=arn, EncryptionType="KMS", KeyId="alias/aws/kinesis")
    call("StopStreamEncryption", StreamARN=arn, EncryptionType="KMS", KeyId="alias/aws/kinesis")
    call("EnableEnhancedMonitoring", StreamARN=arn, ShardLevelMetrics=["IncomingBytes"])
    call("DisableEnhancedMonitoring", StreamARN=arn, ShardLevelMetrics=["IncomingBytes"])
    call("AddTagsToStream", StreamARN=arn, Tags={"b": "c"})
    call("RemoveTagsFromStream", StreamARN=arn, TagKeys=["b"])
    assert call("ListTagsForStream", StreamARN=arn)["Tags"] == [{"Key": "team", "Value": "a"}]
    call("TagResource", ResourceARN=arn, Tags={"b": "c"})
    call("UntagResource", ResourceARN=arn, TagKeys=["b"])
    assert call("ListTagsForResource", ResourceARN=arn)["Tags"] == [{"Key": "team", "Value": "a"}]
    call("PutResourcePolicy", ResourceARN=arn, Policy="{}")
    assert call("GetResourcePolicy", ResourceARN=arn)["Policy"] == "{}"
    call("DeleteResourcePolicy", ResourceARN=arn)


def consumer(call: Call, arn: str) -> None:
    made = call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")["Consumer"]["ConsumerARN"]
    shown = call("DescribeStreamConsumer", ConsumerARN=made)["ConsumerDescription"]
    assert shown["ConsumerName"] == call("ListStreamConsumers", StreamARN=arn)["Consumers"][0]["ConsumerName"]
    call("PutRecord", StreamARN=arn, Data=b"three", PartitionKey="k")
    start = {"ShardId": "shardId-000000000000", "StartingPosition": {"Type": "TRIM_HORIZON"}}
    event = call("SubscribeToShard", ConsumerARN=made, **start)["SubscribeToShardEvent"]
    assert [record["Data"] for record in event["Records"]] == [b"three"]
    call("DeregisterStreamConsumer", ConsumerARN=made)


def queue(call: Call, arn: str) -> None:
    streams = [{"StreamARN": arn, "StartingPosition": {"Type": "TRIM_HORIZON"}}]
    dead_letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": 1}
    attributes = {"VisibilityTimeoutSeconds": 0, "DeadLetterConfiguration": dead_letters}
    made = call("CreateQueue", QueueName="q", StreamConfigurationList=streams, QueueAttributes=attributes)
    of = {"QueueARN": made["QueueDescription"]["QueueARN"]}
    assert call("DescribeQueue", **of) == made
    assert call("ListQueues", StreamFilter=[{"StreamARN": arn}])["QueueSummaries"][0]["QueueName"] == "q"

    def handles(operation: str, **entry: object) -> list[dict[str, object]]:
        records = call(operation, WaitTimeSeconds=1, **of)["QueueRecords"]
        assert [record["Data"] for record in records] == [b"three"]
        return [{"ReceiptHandle": record["ReceiptHandle"], **entry} for record in records]

    def settle(operation: str, entries: list[dict[str, object]]) -> None:
        assert len(call(operation, Entries=entries, **of)["Successful"]) == 1

    handles("ReceiveQueueRecords")
    dead = handles("ReceiveDeadLetterQueueRecords", VisibilityTimeoutSeconds=0)
    settle("UpdateDeadLetterQueueRecordsVisibility", dead)
    settle("RestoreDeadLetterQueueRecords", handles("ReceiveDeadLetterQueueRecords"))
    call("UpdateQueue", QueueAttributes={"VisibilityTimeoutSeconds": 60}, **of)
    settle("UpdateQueueRecordsVisibility", handles("ReceiveQueueRecords", VisibilityTimeoutSeconds=0))
    settle("AcknowledgeDeadLetterQueueRecords", handles("ReceiveDeadLetterQueueRecords"))
    call("PutRecord", StreamARN=arn, Data=b"three", PartitionKey="k")
    settle("AcknowledgeQueueRecords", handles("ReceiveQueueRecords"))
    call("DeleteQueue", **of)


def main(url: str) -> None:
    """Converse by boto3, and print the SDK's version and each operation that was called."""
    import boto3
    from botocore import xform_name
    from botocore.config import Config

    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    client = session.client("kinesis", endpoint_url=url, config=Config(retries={"total_max_attempts": 1}))
    print(boto3.__version__)

    def call(operation: str, **fields: Any) -> dict[str, Any]:
        response = getattr(client, xform_name(operation))(**fields)
        response.pop("ResponseMetadata")
        print(operation)
        return next(iter(response["EventStream"])) if operation == "SubscribeToShard" else response

    converse(call)


if __name__ == "__main__":
    main(sys.argv[1])
