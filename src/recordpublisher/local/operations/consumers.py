"""Register-, Describe-, List- and DeregisterStreamConsumer."""

import msgspec

from ..api_errors import invalid_argument
from ..requests import consumers as requests
from ..streams.account import Account
from ..streams.consumers import Consumer, consumer_not_found
from ..streams.stream import Stream


class ConsumerPage(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Where the next page of ListStreamConsumers begins."""

    stream: str
    after: str


def register_stream_consumer(account: Account, request: requests.RegisterStreamConsumer) -> object:
    """Register a consumer; it is ACTIVE after the set delay."""
    stream = account.find_usable(arn=request.stream_arn)
    queue_count, is_advantage = len(account.queues.all(stream)), account.is_advantage(stream)
    consumer = stream.consumers.register(request.consumer_name, request.tags, queue_count, is_advantage)
    return {"Consumer": consumer.describe(account.clock.now_ms())}


def describe_stream_consumer(account: Account, request: requests.ConsumerRequest) -> object:
    """Describe a consumer named by ARN, or by stream and name."""
    stream, consumer = find_consumer(account, request)
    described = consumer.describe(account.clock.now_ms())
    return {"ConsumerDescription": {**described, "StreamARN": stream.arn}}


def list_stream_consumers(account: Account, request: requests.ListStreamConsumers) -> object:
    """List a stream's consumers by name, page by page."""
    stream = account.find_usable(arn=request.stream_arn)
    after = _after(account, stream, request.next_token)
    consumers = [consumer for consumer in stream.consumers.all() if consumer.name > after]
    found = consumers[: request.max_results]
    response: dict[str, object] = {"Consumers": [consumer.describe(account.clock.now_ms()) for consumer in found]}
    if len(found) < len(consumers):
        response["NextToken"] = account.tokens.seal(ConsumerPage(stream.name, found[-1].name))
    return response


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


def _after(account: Account, stream: Stream, token: str | None) -> str:
    if token is None:
        return ""
    page = account.tokens.open(token, ConsumerPage)
    if page is None or page.stream != stream.name:
        raise invalid_argument("NextToken is invalid.")
    return page.after
