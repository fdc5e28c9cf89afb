"""The inputs of every operation, as the service's API model declares them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_.-]+$")]
Arn = Annotated[str, Meta(max_length=2048, pattern=r"^arn:aws.*:kinesis:.*:\d{12}:stream/\S+$")]
Number = Annotated[str, Meta(pattern=r"^(0|[1-9]\d{0,128})$")]
HashKey = Annotated[str, Meta(pattern=r"^(0|[1-9]\d{0,38})$")]
PartitionKey = Annotated[str, Meta(min_length=1, max_length=256)]
RecordDistribution = Literal["AUTO", "USER_PARTITION_KEY"]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Token = Annotated[str, Meta(min_length=1, max_length=1_048_576)]
StartType = Literal["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]


class Request(msgspec.Struct, rename="pascal", frozen=True):
    """An input; unknown fields are ignored."""


class StreamRequest(Request, frozen=True):
    """An input that names a stream by name or ARN."""

    stream_name: Name | None = None
    stream_arn: Arn | None = msgspec.field(name="StreamARN", default=None)


class StreamModeDetails(Request, frozen=True):
    """The capacity mode; here it only decides whether AUTO record distribution is allowed."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"] = "PROVISIONED"


class CreateStream(Request, frozen=True):
    """A new stream; the record size option is in KiB."""

    stream_name: Name
    shard_count: Count = 4
    record_distribution_strategy: RecordDistribution | None = None
    max_record_size: Annotated[int, Meta(ge=1024, le=10_240)] = msgspec.field(name="MaxRecordSizeInKiB", default=1024)
    stream_mode_details: StreamModeDetails = StreamModeDetails()


class DeleteStream(StreamRequest, frozen=True):
    """A stream to delete, with its consumers when that is enforced."""

    enforce_consumer_deletion: bool = False


class DescribeStream(StreamRequest, frozen=True):
    """One page of a stream's shards."""

    limit: Count = 100
    exclusive_start_shard_id: Name | None = None


class DescribeStreamSummary(StreamRequest, frozen=True):
    """A stream without its shards."""


class ListStreams(Request, frozen=True):
    """One page of the streams, by name."""

    limit: Count = 100
    exclusive_start_stream_name: Name | None = None
    next_token: Token | None = None


class ShardFilter(Request, frozen=True):
    """Which shards ListShards shows; timestamps are in seconds."""

    type: Literal[
        "AFTER_SHARD_ID", "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST", "AT_TIMESTAMP", "FROM_TIMESTAMP"
    ]
    shard_id: Name | None = None
    timestamp: float | None = None


class ListShards(StreamRequest, frozen=True):
    """One page of a stream's shards, or the token of the next one."""

    next_token: Token | None = None
    exclusive_start_shard_id: Name | None = None
    max_results: Count = 1000
    stream_creation_timestamp: float | None = None
    shard_filter: ShardFilter | None = None


class ChangeRetention(StreamRequest, frozen=True, kw_only=True):
    """How many hours records are kept."""

    retention_period_hours: int


class IncreaseStreamRetentionPeriod(ChangeRetention, frozen=True, kw_only=True):
    """A longer retention period."""


class DecreaseStreamRetentionPeriod(ChangeRetention, frozen=True, kw_only=True):
    """A shorter retention period."""


class UpdateStreamRecordDistributionStrategy(Request, frozen=True):
    """Whether keys decide the shard of new records."""

    stream_arn: Arn = msgspec.field(name="StreamARN")
    record_distribution_strategy: RecordDistribution


class Entry(msgspec.Struct, rename="pascal", gc=False):
    """One record to put; `data` stays base64 text."""

    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None


class PutRecord(StreamRequest, frozen=True, kw_only=True):
    """One record to put."""

    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None
    sequence_number_for_ordering: Number | None = None
    dry_run: bool = False


class PutRecords(StreamRequest, frozen=True, kw_only=True):
    """Up to 500 records to put."""

    records: Annotated[list[Entry], Meta(min_length=1, max_length=500)]
    dry_run: bool = False


class GetShardIterator(StreamRequest, frozen=True, kw_only=True):
    """A position in a shard; the timestamp is in seconds."""

    shard_id: Name
    shard_iterator_type: StartType
    starting_sequence_number: Number | None = None
    timestamp: float | None = None
    dry_run: bool = False


class GetRecords(Request, frozen=True):
    """A read from a shard iterator."""

    shard_iterator: Annotated[str, Meta(min_length=1, max_length=512)]
    limit: Count = 10_000
    stream_arn: Arn | None = msgspec.field(name="StreamARN", default=None)
    dry_run: bool = False


class SplitShard(StreamRequest, frozen=True, kw_only=True):
    """A shard and the hash key that its second child begins at."""

    shard_to_split: Name
    new_starting_hash_key: HashKey


class MergeShards(StreamRequest, frozen=True, kw_only=True):
    """Two neighbouring shards."""

    shard_to_merge: Name
    adjacent_shard_to_merge: Name


class UpdateShardCount(StreamRequest, frozen=True, kw_only=True):
    """How many open shards the stream will have."""

    target_shard_count: Count
    scaling_type: Literal["UNIFORM_SCALING"]


class RegisterStreamConsumer(Request, frozen=True):
    """A name for a new consumer of a stream."""

    stream_arn: Arn = msgspec.field(name="StreamARN")
    consumer_name: Name


class ConsumerRequest(Request, frozen=True):
    """Names a consumer by its ARN, or by its stream and name."""

    stream_arn: Arn | None = msgspec.field(name="StreamARN", default=None)
    consumer_name: Name | None = None
    consumer_arn: Arn | None = msgspec.field(name="ConsumerARN", default=None)


class DescribeStreamConsumer(ConsumerRequest, frozen=True):
    """A consumer to look up."""


class DeregisterStreamConsumer(ConsumerRequest, frozen=True):
    """A consumer to remove."""


class ListStreamConsumers(Request, frozen=True):
    """One page of a stream's consumers."""

    stream_arn: Arn = msgspec.field(name="StreamARN")
    next_token: Token | None = None
    max_results: Count = 100
    stream_creation_timestamp: float | None = None


class StartingPosition(Request, frozen=True):
    """Where a subscription starts; the timestamp is in seconds."""

    type: StartType
    sequence_number: Number | None = None
    timestamp: float | None = None


class SubscribeToShard(Request, frozen=True):
    """A consumer, a shard and where to start."""

    consumer_arn: Arn = msgspec.field(name="ConsumerARN")
    shard_id: Name
    starting_position: StartingPosition
    dry_run: bool = False
