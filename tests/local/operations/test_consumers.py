import pytest

from recordpublisher.local.api_errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture(autouse=True)
def orders(ask) -> None:
    ask("CreateStream", StreamName="orders", ShardCount=1)


def test_a_consumer_is_found_by_its_arn_or_by_stream_and_name(ask):
    registered = ask("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]
    by_arn = ask("DescribeStreamConsumer", ConsumerARN=registered["ConsumerARN"])["ConsumerDescription"]
    by_name = ask("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="c")["ConsumerDescription"]
    assert by_arn == by_name == {**registered, "StreamARN": ARN}


def test_a_consumer_must_be_named(ask):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        ask("DescribeStreamConsumer", StreamARN=ARN)


def test_consumers_are_listed_page_by_page(ask):
    for name in ("c", "a", "b"):
        ask("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)
    first = ask("ListStreamConsumers", StreamARN=ARN, MaxResults=2)
    second = ask("ListStreamConsumers", StreamARN=ARN, NextToken=first["NextToken"])
    assert [c["ConsumerName"] for c in first["Consumers"] + second["Consumers"]] == ["a", "b", "c"]
    assert "NextToken" not in second


def test_a_deregistered_consumer_is_not_found(ask):
    ask("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    ask("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        ask("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
