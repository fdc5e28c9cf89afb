"""The inputs of all operations, with the names, constraints and descriptions of the service's API reference. Unknown fields are ignored."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec
from msgspec import Meta, inspect

from ..publishers.service_limits import (
    DEFAULT_RECORD_BYTES,
    GET_RECORDS_RECORDS,
    LARGEST_RECORD_BYTES,
    PARTITION_KEY_CHARACTERS,
    PUT_RECORDS_RECORDS,
)
from .errors import ApiError


def text(most: int, pattern: str) -> Meta:
    """Return the constraints of a text: it has 1 to `most` characters and matches the pattern."""
    return Meta(min_length=1, max_length=most, pattern=rf"^(?:{pattern})\Z")


Name = Annotated[str, text(128, r"[a-zA-Z0-9_.-]+")]
Arn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:stream/\S+")]
ResourceArn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:.*(stream|channel|queue)/\S+")]
Number = Annotated[str, Meta(pattern=r"^(?:0|([1-9]\d{0,128}))\Z")]
HashKey = Annotated[str, Meta(pattern=r"^(?:0|([1-9]\d{0,38}))\Z")]
PartitionKey = Annotated[str, Meta(min_length=1, max_length=PARTITION_KEY_CHARACTERS)]
TagKey = Annotated[str, Meta(min_length=1, max_length=128)]
Tags = Annotated[dict[TagKey, Annotated[str, Meta(max_length=256)]], Meta(min_length=1, max_length=200)]
RecordDistribution = Literal["AUTO", "USER_PARTITION_KEY"]
Count = Annotated[int, Meta(ge=1, le=GET_RECORDS_RECORDS)]
RecordKibibytes = Annotated[int, Meta(ge=1024, le=LARGEST_RECORD_BYTES // 1024)]
Token = Annotated[str, Meta(min_length=1, max_length=1_048_576)]
StartType = Literal["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]


def _api_name(field: str) -> str:
    """Return the API's name of a field: `StreamARN` for `stream_arn`."""
    return "".join("ARN" if word == "arn" else word.capitalize() for word in field.split("_"))


class Request(msgspec.Struct, rename=_api_name, frozen=True):
    """An input of an operation. Unknown fields are ignored."""


class StreamRequest(Request, frozen=True):
    """An input that names a stream by name or ARN."""

    stream_name: Name | None = None
    stream_arn: Arn | None = None


class StreamModeDetails(Request, frozen=True):
    """The capacity mode; here it only decides whether AUTO record distribution is allowed."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"]


class CreateStream(Request, frozen=True):
    """The input of CreateStream. `max_record_size` is in KiB."""

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
    """The filter for the shards that ListShards shows. Timestamps are in seconds."""

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
    """The input of SplitShard: a shard, and the hash key at which its second child begins."""

    shard_to_split: Name
    new_starting_hash_key: HashKey


class MergeShards(StreamRequest, frozen=True, kw_only=True):
    shard_to_merge: Name
    adjacent_shard_to_merge: Name


class UpdateShardCount(StreamRequest, frozen=True, kw_only=True):
    target_shard_count: Count
    scaling_type: Literal["UNIFORM_SCALING"]


class PutRecordsEntry(msgspec.Struct, rename="pascal", gc=False):
    """One record to put. Its `data` stays base64 text."""

    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None


class PutRecord(StreamRequest, frozen=True, kw_only=True):
    data: str
    partition_key: PartitionKey | None = None
    explicit_hash_key: HashKey | None = None
    sequence_number_for_ordering: Number | None = None
    dry_run: bool = False


class PutRecords(StreamRequest, frozen=True, kw_only=True):
    records: Annotated[list[PutRecordsEntry], Meta(min_length=1, max_length=PUT_RECORDS_RECORDS)]
    dry_run: bool = False


class GetShardIterator(StreamRequest, frozen=True, kw_only=True):
    """The input of GetShardIterator: a position in a shard. The timestamp is in seconds."""

    shard_id: Name
    shard_iterator_type: StartType
    starting_sequence_number: Number | None = None
    timestamp: float | None = None
    dry_run: bool = False


class GetRecords(Request, frozen=True):
    shard_iterator: Annotated[str, Meta(min_length=1, max_length=512)]
    limit: Count = GET_RECORDS_RECORDS
    stream_arn: Arn | None = None
    dry_run: bool = False


class RegisterStreamConsumer(Request, frozen=True):
    stream_arn: Arn
    consumer_name: Name
    tags: Tags | None = None


class ConsumerRequest(Request, frozen=True):
    """Names a consumer by its ARN, or by its stream and name."""

    stream_arn: Arn | None = None
    consumer_name: Name | None = None
    consumer_arn: Arn | None = None


class ListStreamConsumers(Request, frozen=True):
    stream_arn: Arn
    next_token: Token | None = None
    max_results: Count = 100
    stream_creation_timestamp: float | None = None


class StartingPosition(Request, frozen=True):
    """The start of a subscription. The timestamp is in seconds."""

    type: StartType
    sequence_number: Number | None = None
    timestamp: float | None = None


class SubscribeToShard(Request, frozen=True):
    consumer_arn: Arn
    shard_id: Name
    starting_position: StartingPosition
    dry_run: bool = False


QueueArn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:queue/\S+")]
VisibilityTimeout = Annotated[int, Meta(ge=0, le=43_200)]
Handle = Annotated[str, Meta(min_length=1, max_length=1024)]


class QueueStartingPosition(Request, frozen=True):
    """The start of a queue. The timestamp is in seconds."""

    type: Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]
    timestamp: float | None = None


class QueueStreamConfiguration(Request, frozen=True):
    stream_arn: Arn
    starting_position: QueueStartingPosition = QueueStartingPosition("LATEST")


class DeadLetterConfiguration(Request, frozen=True, omit_defaults=True):
    target_type: Literal["BUILT_IN", "NONE"]
    max_receive_count: Annotated[int, Meta(ge=1, le=1000)] | None = None


class QueueAttributes(Request, frozen=True, omit_defaults=True):
    visibility_timeout_seconds: VisibilityTimeout | None = None
    dead_letter_configuration: DeadLetterConfiguration | None = None


class CreateQueue(Request, frozen=True):
    queue_name: Name
    stream_configuration_list: Annotated[list[QueueStreamConfiguration], Meta(min_length=1, max_length=10_000)]
    queue_attributes: QueueAttributes = QueueAttributes()
    tags: Tags | None = None


class QueueRequest(Request, frozen=True):
    """An input that names a queue."""

    queue_arn: QueueArn


class UpdateQueue(QueueRequest, frozen=True, kw_only=True):
    queue_attributes: QueueAttributes


class StreamFilter(Request, frozen=True):
    """A stream whose queues ListQueues shows. Its creation time (seconds) distinguishes it from an earlier stream of the same name."""

    stream_arn: Arn
    stream_creation_timestamp: float | None = None


class ListQueues(Request, frozen=True):
    max_results: Count = 100
    next_token: Token | None = None
    stream_filter: Annotated[list[StreamFilter], Meta(min_length=1, max_length=10_000)] | None = None


class ReceiveRequest(QueueRequest, frozen=True, kw_only=True):
    """A long poll of a queue, for records or dead letters."""

    limit: Annotated[int, Meta(ge=1, le=10)] = 10
    wait_time_seconds: Annotated[int, Meta(ge=1, le=20)] = 9
    visibility_timeout_seconds: VisibilityTimeout | None = None


class ReceiptEntry(Request, frozen=True):
    receipt_handle: Handle


class VisibilityEntry(ReceiptEntry, frozen=True, kw_only=True):
    visibility_timeout_seconds: VisibilityTimeout


class ReceiptsRequest(QueueRequest, frozen=True, kw_only=True):
    """The input of a call about many records, each named by the handle of its receipt."""

    entries: Annotated[list[ReceiptEntry], Meta(min_length=1, max_length=10)]


class VisibilityUpdate(QueueRequest, frozen=True, kw_only=True):
    entries: Annotated[list[VisibilityEntry], Meta(min_length=1, max_length=10)]


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
    """The input of UpdateMaxRecordSize. The size is in KiB."""

    stream_arn: Arn
    max_record_size: RecordKibibytes = msgspec.field(name="MaxRecordSizeInKiB")


class UpdateStreamMode(Request, frozen=True, kw_only=True):
    stream_arn: Arn
    stream_mode_details: StreamModeDetails


MAX_VIOLATIONS = 10
"""The most violations that the service names in one message."""
ENUM_ORDER = ("AFTER_SEQUENCE_NUMBER", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "TRIM_HORIZON")
"""The order in which the service shows the values of ShardIteratorType. Values of other fields are sorted by name."""
PUT_ENTRY_CLASS = "com.amazonaws.kinesis.v20131202.PutRecordsRequestEntry"
"""The text by which the service shows a record, followed by a hash.

Structures in other lists are shown in the same way, because it is not known how the service shows them.
"""
TYPES: tuple[tuple[type, type], ...] = (
    (inspect.StrType, str),
    (inspect.LiteralType, str),
    (inspect.IntType, int),
    (inspect.ListType, list),
    (inspect.DictType, dict),
    (inspect.StructType, dict),
)


def violations(kind: type[msgspec.Struct], body: bytes) -> str | None:
    """Return the service's message for an input that is not valid, or None if it violates no constraint of the model."""
    found = list(_of_fields(kind, msgspec.json.decode(body or b"{}"), ""))[:MAX_VIOLATIONS]
    if not found:
        return None
    return f"{len(found)} validation error{'s' * (len(found) > 1)} detected: {'; '.join(found)}"


def violation(value: str, path: str, constraint: str) -> str:
    """Return the description of one violated constraint, in the service's words."""
    return f"Value {value} at '{path}' failed to satisfy constraint: {constraint}"


def _of_fields(kind: type, given: dict[str, Any], path: str) -> Iterator[str]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        value = given.get(field.encode_name)
        name = path + field.encode_name[0].lower() + field.encode_name[1:]
        if value is not None:
            yield from _of_value(_without_none(field.type), value, name)
        elif field.required:
            yield violation("null", name, "Member must not be null")


def _of_value(kind: inspect.Type, value: Any, path: str) -> Iterator[str]:
    _check_type(kind, value, path)
    say = partial(violation, f"'{_shown(value)}'", path)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        yield from _of_fields(kind.cls, value, f"{path}.")
        return
    yield from map(say, _broken(kind, value))
    if isinstance(kind, inspect.ListType) and isinstance(kind.item_type, inspect.StructType):
        for place, item in enumerate(value, 1):
            yield from _of_value(kind.item_type, item, f"{path}.{place}.member")
    elif isinstance(kind, inspect.ListType):
        yield from _of_members(say, "Member", kind.item_type, value)
    elif isinstance(kind, inspect.DictType):
        yield from _of_members(say, "Map keys", kind.key_type, value)
        yield from _of_members(say, "Map value", kind.value_type, value.values())


def _check_type(kind: inspect.Type, value: Any, path: str) -> None:
    """Raise SerializationException for a wrong type.

    A wrong type anywhere in the input is reported before any violated constraint.
    """
    expected = next((types for of, types in TYPES if isinstance(kind, of)), object)
    if not isinstance(value, expected):
        raise ApiError("SerializationException", f"{path} is of the wrong type: {type(value).__name__}")


def _of_members(say: Callable[[str], str], what: str, kind: inspect.Type, values: Any) -> Iterator[str]:
    """Yield one violation for all items of a list or map, if an item is not valid. Its text names every constraint of an item.

    - `say`: returns the text of a violation, from the constraint.
    - `what`: names the items in the text.
    """
    for value in values:
        _check_type(kind, value, what)
    if any(any(_broken(kind, value)) for value in values):
        yield say(f"{what} must satisfy constraint: [{', '.join(_constraints(kind))}]")


def _broken(kind: inspect.Type, value: Any) -> Iterator[str]:
    """Yield each constraint that the value violates. Items of a list or map are not checked here."""
    if isinstance(kind, inspect.LiteralType) and value not in kind.values:
        yield f"Member must satisfy enum value set: [{', '.join(_ordered(kind.values))}]"
    if isinstance(kind, inspect.StrType) and kind.pattern is not None and not re.search(kind.pattern, value):
        yield f"Member must satisfy regular expression pattern: {kind.pattern[4:-3]}"
    if isinstance(kind, inspect.IntType):
        yield from _out_of_range("value", kind.ge, kind.le, value)
    if isinstance(kind, inspect.StrType | inspect.ListType | inspect.DictType):
        yield from _out_of_range("length", kind.min_length, kind.max_length, len(value))


def _out_of_range(what: str, lowest: float | None, highest: float | None, found: float) -> Iterator[str]:
    if highest is not None and found > highest:
        yield f"Member must have {what} less than or equal to {highest}"
    if lowest is not None and found < lowest:
        yield f"Member must have {what} greater than or equal to {lowest}"


def _constraints(kind: inspect.Type) -> Iterator[str]:
    if isinstance(kind, inspect.LiteralType):
        yield f"Member must satisfy enum value set: [{', '.join(_ordered(kind.values))}]"
    elif isinstance(kind, inspect.StrType):
        yield f"Member must have length less than or equal to {kind.max_length}"
        yield f"Member must have length greater than or equal to {kind.min_length or 0}"


def _ordered(values: Any) -> list[str]:
    return sorted(values, key=lambda value: (ENUM_ORDER.index(value) if value in ENUM_ORDER else 0, value))


def _without_none(kind: inspect.Type) -> inspect.Type:
    if not isinstance(kind, inspect.UnionType):
        return kind
    (only,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    return only


def _shown(value: Any) -> str:
    """Return a value as the service shows it in messages: in Java's text form."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[{', '.join(f'{PUT_ENTRY_CLASS}@{crc32(msgspec.json.encode(each)):x}' for each in value)}]"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_shown(each)}' for key, each in value.items())}}}"
    return str(value)
