"""Declares the properties of retries: four for each operation."""

from ..property_types import PropertyGroup
from ..retry_properties import retry_properties

RETRIES = PropertyGroup("Retries")
GETRECORDS_RETRIES = retry_properties(RETRIES, "flink.shard.getrecords", "GetRecords", 3, 300, 1_000)
GETITERATOR_RETRIES = retry_properties(RETRIES, "flink.shard.getiterator", "GetShardIterator", 3, 300, 1_000)
LIST_SHARDS_RETRIES = retry_properties(RETRIES, "flink.list.shards", "ListShards", 10, 1_000, 5_000)
DESCRIBE_STREAM_RETRIES = retry_properties(RETRIES, "flink.stream.describe", "DescribeStreamSummary", 50, 2_000, 5_000)
DESCRIBE_CONSUMER_RETRIES = retry_properties(
    RETRIES, "flink.stream.describestreamconsumer", "DescribeStreamConsumer", 50, 2_000, 5_000
)
LIST_CONSUMERS_RETRIES = retry_properties(
    RETRIES, "flink.stream.liststreamconsumers", "ListStreamConsumers", 10, 200, 1_000, ("none", "none", "none")
)
REGISTER_RETRIES = retry_properties(
    RETRIES, "flink.stream.registerstreamconsumer", "RegisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
DEREGISTER_RETRIES = retry_properties(
    RETRIES, "flink.stream.deregisterstreamconsumer", "DeregisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
SUBSCRIBE_RETRIES = retry_properties(
    RETRIES, "flink.shard.subscribetoshard", "SubscribeToShard", 5, 1_000, 2_000, ("10", "", "")
)
ALL_RETRIES = (
    GETRECORDS_RETRIES, GETITERATOR_RETRIES, LIST_SHARDS_RETRIES, DESCRIBE_STREAM_RETRIES, DESCRIBE_CONSUMER_RETRIES,
    LIST_CONSUMERS_RETRIES, REGISTER_RETRIES, DEREGISTER_RETRIES, SUBSCRIBE_RETRIES,
)  # fmt: skip
