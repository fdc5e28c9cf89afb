"""SubscribeToShard, up to the point where the answer begins to flow."""

from .. import requests
from ..api_errors import in_use, not_found
from ..streams.account import Account
from ..streams.shard_iterator import start_counter
from ..streams.subscriptions import Subscription


def subscribe_to_shard(account: Account, request: requests.SubscribeToShard) -> Subscription:
    """Open a subscription; raises what the service answers with before any event."""
    stream = account.usable(arn=request.consumer_arn)
    consumer = stream.consumers.find(arn=request.consumer_arn)
    now = account.clock.now_ms()
    if consumer.status(now) == "CREATING":
        raise in_use(f"Consumer {consumer.arn} is CREATING, not ACTIVE.")
    if consumer.status(now) == "DELETING":
        raise not_found(f"Consumer {consumer.arn} is DELETING.")
    shard = stream.shard(request.shard_id)
    start = request.starting_position
    counter = start_counter(shard, start.type, start.sequence_number, start.timestamp, now)
    if account.throttle:
        account.throttle.before_subscribe(f"{consumer.arn} {shard.id}")
    return account.subscriptions.open(stream, consumer, shard, counter)
