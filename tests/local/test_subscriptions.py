"""The events that a subscription sends, tested without a socket."""

from typing import Any

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer

from recordpublisher.local import ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.errors import ApiError
from recordpublisher.local.shard import start_counter
from recordpublisher.local.stream import Stream, split
from recordpublisher.local.subscriptions import SendStep, Subscription, WaitStep


@pytest.fixture
def stream(account: Account) -> Stream:
    return account.create_stream("orders", 1)


def subscribe(account: Account, stream: Stream, name: str = "c", kind: str = "TRIM_HORIZON") -> Subscription:
    taken = [consumer for consumer in stream.consumers.all() if consumer.name == name]
    consumer = taken[0] if taken else stream.consumers.register(name)
    shard = stream.shards["shardId-000000000000"]
    counter = start_counter(shard, kind, None, None, account.clock.now_ms())
    return account.subscriptions.open(stream, consumer, shard, counter)


def step(subscription: Subscription, clock: ManualClock) -> tuple[str, dict[str, Any], bool]:
    """Return kind and payload of the next event, and whether it is the last one."""
    sent = subscription.next_step(clock.now_ms())
    assert isinstance(sent, SendStep), sent
    buffer = EventStreamBuffer()
    buffer.add_data(sent.frame)
    message = next(iter(buffer))
    kind = message.headers.get(":event-type") or message.headers[":exception-type"]
    return str(kind), msgspec.json.decode(message.payload), sent.last


def test_the_continuation_of_records_is_the_last_sequence_number(account, stream, clock):
    subscription = subscribe(account, stream)
    stream.put(b"a", "k")
    number = stream.put(b"b", "k")
    kind, event, last = step(subscription, clock)
    assert (kind, last, len(event["Records"])) == ("SubscribeToShardEvent", False, 2)
    assert event["ContinuationSequenceNumber"] == number
    assert event["MillisBehindLatest"] == 0


def test_without_new_records_a_subscription_waits_for_the_heartbeat(account, stream, clock):
    subscription = subscribe(account, stream)
    assert subscription.next_step(clock.now_ms()) == WaitStep(clock.now_ms() + 5000)


def test_a_heartbeat_is_empty_and_its_continuation_advances_without_loss(account, stream, clock):
    subscription = subscribe(account, stream, kind="LATEST")
    continuations = []
    for _ in range(2):
        clock.advance(5000)
        _, event, _ = step(subscription, clock)
        assert event["Records"] == []
        continuations.append(event["ContinuationSequenceNumber"])
    assert continuations[0] < continuations[1]
    stream.put(b"next", "k")
    shard = subscription.shard
    counter = start_counter(shard, "AFTER_SEQUENCE_NUMBER", continuations[1], None, clock.now_ms())
    assert len(shard.log.read(counter, 10, 1000).fragments) == 1


def test_an_event_is_bounded_in_records_and_bytes_and_has_the_lag(account, stream, clock):
    for _ in range(2500):
        stream.put(b"", "k")
    subscription = subscribe(account, stream)
    clock.advance(10)
    events = [step(subscription, clock)[1] for _ in range(2)]
    assert [len(event["Records"]) for event in events] == [2000, 500]
    assert [event["MillisBehindLatest"] for event in events] == [10, 0]
    for _ in range(5):
        stream.put(bytes(300_000), "k")
    assert len(step(subscription, clock)[1]["Records"]) == 3


def test_the_last_event_of_a_shard_has_children_and_no_continuation(account, stream, clock):
    subscription = subscribe(account, stream)
    stream.put(b"a", "k")
    split(stream, subscription.shard, 1000)
    _, event, last = step(subscription, clock)
    assert last
    assert len(event["Records"]) == 1
    assert event["ContinuationSequenceNumber"] is None
    assert [child["ShardId"][-1] for child in event["ChildShards"]] == ["1", "2"]


def test_a_subscription_ends_cleanly_after_five_minutes(account, stream, clock):
    subscription = subscribe(account, stream)
    stream.put(b"a", "k")
    clock.advance(299_999)
    step(subscription, clock)
    clock.advance(1)
    assert subscription.next_step(clock.now_ms()) is None


def test_a_second_call_within_5_s_of_a_success_is_refused(account, stream, clock):
    first = subscribe(account, stream)
    clock.advance(4999)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        subscribe(account, stream)
    assert not first.replaced


def test_the_5_s_rule_applies_also_after_the_first_subscription_has_ended(account, stream, clock):
    account.subscriptions.close(subscribe(account, stream))
    with pytest.raises(ApiError, match="ResourceInUseException"):
        subscribe(account, stream)


def test_after_5_s_a_second_call_takes_over_and_the_first_ends_with_an_error_event(account, stream, clock):
    first = subscribe(account, stream)
    woken: list[str] = []
    first.wake = lambda: woken.append("up")
    clock.advance(5000)
    second = subscribe(account, stream)
    assert woken == ["up"]
    kind, _, last = step(first, clock)
    assert (kind, last) == ("ResourceInUseException", True)
    account.subscriptions.close(first)
    stream.put(b"a", "k")
    assert step(second, clock)[0] == "SubscribeToShardEvent"


def test_consumers_are_independent(account, stream, clock):
    first, second = subscribe(account, stream, "a"), subscribe(account, stream, "b")
    stream.put(b"x", "k")
    assert [len(step(s, clock)[1]["Records"]) for s in (first, second)] == [1, 1]


def test_the_subscription_of_a_deregistered_consumer_ends_with_an_error_event(account, stream, clock):
    subscription = subscribe(account, stream)
    stream.consumers.deregister(subscription.consumer)
    assert step(subscription, clock)[0] == "ResourceNotFoundException"


def test_the_subscription_of_a_deleted_stream_ends_with_an_error_event(account, stream, clock):
    subscription = subscribe(account, stream)
    stream.set_busy("DELETING", 0)
    assert step(subscription, clock)[0] == "ResourceNotFoundException"


def test_records_past_retention_are_not_sent(account, stream, clock):
    subscription = subscribe(account, stream)
    subscription.opened_ms += 100_000_000
    stream.put(b"old", "k")
    clock.advance(86_400_001)
    assert step(subscription, clock)[1]["Records"] == []
