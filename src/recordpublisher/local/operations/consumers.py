"""Register-, Describe-, List- and DeregisterStreamConsumer."""

from ..api_errors import invalid_argument
from ..requests import consumers as requests
from ..streams.account import Account
from ..streams.consumers import Consumer, consumer_not_found
from ..streams.stream import Stream
from .pages import page_by_name


def register_stream_consumer(account: Account, request: requests.RegisterStreamConsumer) -> object:
    """Register a consumer; it is ACTIVE after the set delay."""
    stream = account.find_usable(arn=request.stream_arn)
    consumer = stream.consumers.register(request.consumer_name, request.tags, len(account.queues.all(stream)))
    return {"Consumer": consumer.describe(account.clock.now_ms())}


def describe_stream_consumer(account: Account, request: requests.ConsumerRequest) -> object:
    """Describe a consumer named by ARN, or by stream and name."""
    stream, consumer = find_consumer(account, request)
    described = consumer.describe(account.clock.now_ms())
    return {"ConsumerDescription": {**described, "StreamARN": stream.arn}}


def list_stream_consumers(account: Account, request: requests.ListStreamConsumers) -> object:
    """List a stream's consumers by name, page by page."""
    stream = account.find_usable(arn=request.stream_arn)
    consumers, listing = stream.consumers.all(), f"consumers of {stream.name}"
    found, token = page_by_name(account, listing, consumers, request.next_token, request.max_results)
    return {"Consumers": [consumer.describe(account.clock.now_ms()) for consumer in found], **token}


def deregister_stream_consumer(account: Account, request: requests.ConsumerRequest) -> None:
    """Begin to remove a consumer; its subscriptions end at once."""
    stream, consumer = find_consumer(account, request)
    stream.consumers.deregister(consumer)
    account.subscriptions.wake_all()


def find_consumer(account: Account, request: requests.ConsumerRequest) -> tuple[Stream, Consumer]:
    """Return the consumer that the request names, and its stream."""
    arn = request.consumer_arn
    if arn is None and (request.stream_arn is None or request.consumer_name is None):
        raise invalid_argument("Either ConsumerARN or both StreamARN and ConsumerName must be given.")
    if arn is not None and "/consumer/" not in arn:
        raise consumer_not_found(arn)
    stream = account.find_usable(arn=arn or request.stream_arn)
    return stream, stream.consumers.find(name=request.consumer_name, arn=arn)
