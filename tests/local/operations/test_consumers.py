import pytest

from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture(autouse=True)
def orders(call) -> None:
    call("CreateStream", StreamName="orders", ShardCount=1)


def test_a_consumer_is_found_by_its_arn_or_by_stream_and_name(call):
    registered = call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")["Consumer"]
    by_arn = call("DescribeStreamConsumer", ConsumerARN=registered["ConsumerARN"])["ConsumerDescription"]
    by_name = call("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="c")["ConsumerDescription"]
    assert by_arn == by_name == {**registered, "StreamARN": ARN}


def test_a_consumer_must_be_named(call):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("DescribeStreamConsumer", StreamARN=ARN)


def test_consumers_are_listed_page_by_page(call):
    for name in ("c", "a", "b"):
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)
    first = call("ListStreamConsumers", StreamARN=ARN, MaxResults=2)
    second = call("ListStreamConsumers", StreamARN=ARN, NextToken=first["NextToken"])
    assert [c["ConsumerName"] for c in first["Consumers"] + second["Consumers"]] == ["a", "b", "c"]
    assert "NextToken" not in second


def test_a_token_expires(call, clock):
    for name in ("c", "d"):
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)
    token = call("ListStreamConsumers", StreamARN=ARN, MaxResults=1)["NextToken"]
    clock.advance(300_000)
    with pytest.raises(ApiError, match=r"^ExpiredNextTokenException"):
        call("ListStreamConsumers", StreamARN=ARN, NextToken=token)


def test_a_token_of_another_stream_or_operation_is_invalid(call):
    call("CreateStream", StreamName="other", ShardCount=1)
    other = ARN.replace("orders", "other")
    for name in ("c", "d"):
        call("RegisterStreamConsumer", StreamARN=other, ConsumerName=name)
    of_another = call("ListStreamConsumers", StreamARN=other, MaxResults=1)["NextToken"]
    for token in (of_another, call("ListStreams", Limit=1)["NextToken"], "garbage"):
        with pytest.raises(ApiError, match=r"^InvalidArgumentException: NextToken is invalid"):
            call("ListStreamConsumers", StreamARN=ARN, NextToken=token)


def test_a_deregistered_consumer_is_not_found(call):
    call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    call("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
