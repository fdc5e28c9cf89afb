import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.consumers import ConsumerTable

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture
def table(clock: ManualClock) -> ConsumerTable:
    return ConsumerTable(ARN, clock, delay_ms=100)


def test_a_consumer_is_creating_then_active_then_deleting_then_gone(table: ConsumerTable, clock: ManualClock):
    consumer = table.register("c")
    assert consumer.status(clock.now_ms()) == "CREATING"
    clock.advance(100)
    assert consumer.status(clock.now_ms()) == "ACTIVE"
    table.deregister(consumer)
    assert table.find(name="c").status(clock.now_ms()) == "DELETING"
    clock.advance(100)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        table.find(name="c")


def test_the_creation_time_in_the_arn_tells_consumers_of_the_same_name_apart(table: ConsumerTable, clock: ManualClock):
    first = table.register("c")
    assert first.arn == f"{ARN}/consumer/c:1700000000"
    table.deregister(first)
    clock.advance(1000)
    assert table.register("c").arn == f"{ARN}/consumer/c:1700000001"
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        table.find(arn=first.arn)


def test_a_name_can_be_used_again_when_its_consumer_is_gone(table: ConsumerTable):
    table.deregister(table.register("c"))
    with pytest.raises(ApiError, match="ResourceInUseException"):
        table.register("c")


def test_a_stream_has_at_most_twenty_consumers(table: ConsumerTable):
    for i in range(20):
        table.register(f"c{i}")
    with pytest.raises(ApiError, match="LimitExceededException"):
        table.register("one-more")


def test_a_deleting_consumer_cannot_be_deregistered_again(table: ConsumerTable):
    consumer = table.register("c")
    table.deregister(consumer)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        table.deregister(consumer)
