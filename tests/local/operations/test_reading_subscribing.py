import msgspec
import pytest

from recordpublisher.local import Delays, ManualClock, Quotas
from recordpublisher.local.account import Account
from recordpublisher.local.errors import ApiError
from recordpublisher.local.operations.records import subscribe_to_shard
from recordpublisher.local.requests import SubscribeToShard
from recordpublisher.local.stream import Consumer
from recordpublisher.local.subscriptions import Subscription

SHARD = "shardId-000000000000"


@pytest.fixture
def account(clock: ManualClock) -> Account:
    return Account(clock, "us-east-1", Delays(consumer=100), Quotas(subscribes=1))


@pytest.fixture
def consumer(account: Account) -> Consumer:
    return account.create_stream("orders", 1).consumers.register("c")


def subscribe(account: Account, consumer: Consumer, shard: str = SHARD, kind: str = "LATEST") -> Subscription:
    fields = {"ConsumerARN": consumer.arn, "ShardId": shard, "StartingPosition": {"Type": kind}}
    return subscribe_to_shard(account, msgspec.convert(fields, SubscribeToShard))


def test_a_consumer_that_is_creating_cannot_subscribe_yet(account: Account, consumer: Consumer, clock: ManualClock):
    with pytest.raises(ApiError, match="ResourceInUseException"):
        subscribe(account, consumer)
    clock.advance(100)
    subscribe(account, consumer)


def test_a_consumer_that_is_deleting_cannot_subscribe_any_more(
    account: Account, consumer: Consumer, clock: ManualClock
):
    clock.advance(100)
    account.find("orders").consumers.deregister(consumer)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        subscribe(account, consumer)


def test_an_unknown_shard_is_not_found(account: Account, consumer: Consumer, clock: ManualClock):
    clock.advance(100)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        subscribe(account, consumer, shard="shardId-000000000009")


def test_an_invalid_start_is_refused_and_does_not_start_the_5_s(
    account: Account, consumer: Consumer, clock: ManualClock
):
    clock.advance(100)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        subscribe(account, consumer, kind="AT_TIMESTAMP")
    subscribe(account, consumer)


def test_with_quotas_one_call_a_second_is_allowed(account: Account, consumer: Consumer, clock: ManualClock):
    clock.advance(100)
    subscribe(account, consumer)
    with pytest.raises(ApiError, match="LimitExceededException"):
        subscribe(account, consumer)
    clock.advance(1000)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        subscribe(account, consumer)
