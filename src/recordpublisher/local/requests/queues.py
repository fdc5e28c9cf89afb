"""The inputs of operations on queues."""

from typing import Annotated, Literal

from msgspec import Meta

from .fields import Arn, Count, Name, Request, Tags, Token, text

QueueArn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:queue/\S+")]
VisibilityTimeout = Annotated[int, Meta(ge=0, le=43_200)]
Handle = Annotated[str, Meta(min_length=1, max_length=1024)]


class QueueStartingPosition(Request, frozen=True):
    """Where a queue begins; the timestamp is in seconds."""

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
    """A stream. The time of its creation, in seconds, distinguishes it from an earlier stream of the same name."""

    stream_arn: Arn
    stream_creation_timestamp: float | None = None


class ListQueues(Request, frozen=True):
    max_results: Count = 100
    next_token: Token | None = None
    stream_filter: Annotated[list[StreamFilter], Meta(min_length=1, max_length=10_000)] | None = None


class Receive(QueueRequest, frozen=True, kw_only=True):
    """A long poll."""

    limit: Annotated[int, Meta(ge=1, le=10)] = 10
    wait_time_seconds: Annotated[int, Meta(ge=1, le=20)] = 9
    visibility_timeout_seconds: VisibilityTimeout | None = None


class ReceiptEntry(Request, frozen=True):
    receipt_handle: Handle


class VisibilityEntry(ReceiptEntry, frozen=True, kw_only=True):
    visibility_timeout_seconds: VisibilityTimeout


class OfReceipts(QueueRequest, frozen=True, kw_only=True):
    """An input with a result for each handle."""

    entries: Annotated[list[ReceiptEntry], Meta(min_length=1, max_length=10)]


class OfVisibility(QueueRequest, frozen=True, kw_only=True):
    entries: Annotated[list[VisibilityEntry], Meta(min_length=1, max_length=10)]
