"""The inputs of operations on streams and shards."""

from typing import Literal

import msgspec

from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES

from .fields import (
    Arn,
    Count,
    HashKey,
    Name,
    RecordDistribution,
    RecordKibibytes,
    Request,
    StreamModeDetails,
    StreamRequest,
    Tags,
    Token,
)


class CreateStream(Request, frozen=True):
    """A new stream; the record size option is in KiB."""

    stream_name: Name
    shard_count: Count = 4
    record_distribution_strategy: RecordDistribution | None = None
    max_record_size: RecordKibibytes = msgspec.field(name="MaxRecordSizeInKiB", default=DEFAULT_RECORD_BYTES // 1024)
    stream_mode_details: StreamModeDetails = StreamModeDetails("PROVISIONED")
    tags: Tags | None = None


class DeleteStream(StreamRequest, frozen=True):
    enforce_consumer_deletion: bool = False


class DescribeStream(StreamRequest, frozen=True):
    limit: Count = 100
    exclusive_start_shard_id: Name | None = None


class ListStreams(Request, frozen=True):
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
    next_token: Token | None = None
    exclusive_start_shard_id: Name | None = None
    max_results: Count = 1000
    stream_creation_timestamp: float | None = None
    shard_filter: ShardFilter | None = None


class ChangeRetention(StreamRequest, frozen=True, kw_only=True):
    retention_period_hours: int


class UpdateStreamRecordDistributionStrategy(Request, frozen=True):
    stream_arn: Arn
    record_distribution_strategy: RecordDistribution


class SplitShard(StreamRequest, frozen=True, kw_only=True):
    """A shard and the hash key that its second child begins at."""

    shard_to_split: Name
    new_starting_hash_key: HashKey


class MergeShards(StreamRequest, frozen=True, kw_only=True):
    shard_to_merge: Name
    adjacent_shard_to_merge: Name


class UpdateShardCount(StreamRequest, frozen=True, kw_only=True):
    target_shard_count: Count
    scaling_type: Literal["UNIFORM_SCALING"]
