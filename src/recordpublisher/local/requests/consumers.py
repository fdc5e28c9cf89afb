"""The inputs of operations on consumers and their subscriptions."""

import msgspec

from .fields import Arn, Count, Name, Number, Request, StartType, Tags, Token


class RegisterStreamConsumer(Request, frozen=True):
    stream_arn: Arn = msgspec.field(name="StreamARN")
    consumer_name: Name
    tags: Tags | None = None


class ConsumerRequest(Request, frozen=True):
    """Names a consumer by its ARN, or by its stream and name."""

    stream_arn: Arn | None = msgspec.field(name="StreamARN", default=None)
    consumer_name: Name | None = None
    consumer_arn: Arn | None = msgspec.field(name="ConsumerARN", default=None)


class ListStreamConsumers(Request, frozen=True):
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
    consumer_arn: Arn = msgspec.field(name="ConsumerARN")
    shard_id: Name
    starting_position: StartingPosition
    dry_run: bool = False
