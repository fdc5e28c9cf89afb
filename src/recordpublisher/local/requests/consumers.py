"""The inputs of operations on consumers and their subscriptions."""

from .fields import Arn, Count, Name, Number, Request, StartType, Tags, Token


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
    """Where a subscription starts; the timestamp is in seconds."""

    type: StartType
    sequence_number: Number | None = None
    timestamp: float | None = None


class SubscribeToShard(Request, frozen=True):
    consumer_arn: Arn
    shard_id: Name
    starting_position: StartingPosition
    dry_run: bool = False
