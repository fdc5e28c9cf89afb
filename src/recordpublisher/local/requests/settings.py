"""The inputs of operations that store settings: tags, encryption, monitoring, capacity, policies."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .fields import (
    Arn,
    RecordKibibytes,
    Request,
    ResourceArn,
    StreamModeDetails,
    StreamRequest,
    TagKey,
    Tags,
)

ShardMetric = Literal[
    "IncomingBytes", "IncomingRecords", "OutgoingBytes", "OutgoingRecords", "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded", "IteratorAgeMilliseconds", "ALL",
]  # fmt: skip
TagKeys = Annotated[list[TagKey], Meta(min_length=1, max_length=50)]


class ResourceRequest(Request, frozen=True):
    """An input that names a stream, a consumer or a queue by ARN."""

    resource_arn: ResourceArn


class TagResource(ResourceRequest, frozen=True, kw_only=True):
    tags: Tags


class UntagResource(ResourceRequest, frozen=True, kw_only=True):
    tag_keys: TagKeys


class AddTagsToStream(StreamRequest, frozen=True, kw_only=True):
    tags: Tags


class RemoveTagsFromStream(StreamRequest, frozen=True, kw_only=True):
    tag_keys: TagKeys


class ListTagsForStream(StreamRequest, frozen=True):
    exclusive_start_tag_key: TagKey | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 50


class PutResourcePolicy(ResourceRequest, frozen=True, kw_only=True):
    policy: str


class ChangeEncryption(StreamRequest, frozen=True, kw_only=True):
    encryption_type: Literal["NONE", "KMS"]
    key_id: Annotated[str, Meta(min_length=1, max_length=2048)]


class ChangeMonitoring(StreamRequest, frozen=True, kw_only=True):
    shard_level_metrics: Annotated[list[ShardMetric], Meta(min_length=1, max_length=7)]


class UpdateMaxRecordSize(Request, frozen=True, kw_only=True):
    """The largest record, in KiB."""

    stream_arn: Arn
    max_record_size: RecordKibibytes = msgspec.field(name="MaxRecordSizeInKiB")


class UpdateStreamMode(Request, frozen=True, kw_only=True):
    stream_arn: Arn
    stream_mode_details: StreamModeDetails
