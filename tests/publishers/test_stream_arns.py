"""Names and ARNs of streams and consumers are parsed."""

import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.shards import (
    ConsumerArn,
    account_of_arn,
    arn_of,
    is_named_arn,
    region_of_arn,
    stream_name,
)

STREAM = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/a.b-c_d"

CONSUMER = f"{STREAM}/consumer/my.app:1525898737"


def test_a_stream_given_by_name_or_arn_has_the_same_name():
    assert stream_name("a.b-c_d") == stream_name(STREAM) == "a.b-c_d"


def test_a_stream_given_with_a_name_of_its_own_has_that_name():
    given = f"china={STREAM}"
    assert (stream_name(given), arn_of(given)) == ("china", STREAM)
    assert is_named_arn(given)
    assert not is_named_arn(STREAM)


def test_a_stream_given_by_name_has_no_arn():
    assert arn_of("a.b-c_d") is None
    assert arn_of(STREAM) == STREAM


def test_a_stream_arn_contains_region_and_account():
    assert (region_of_arn(STREAM), account_of_arn(STREAM)) == ("cn-north-1", "123456789012")


def test_c2_an_arn_of_another_resource_is_a_configuration_error():
    for arn in ("arn:aws:s3:::bucket", CONSUMER):
        with pytest.raises(ConfigurationError, match=arn):
            region_of_arn(arn)


def test_a_consumer_arn_contains_stream_and_consumer():
    arn = ConsumerArn.parse(CONSUMER)
    assert arn is not None
    assert (arn.stream_arn, arn.stream, arn.name) == (STREAM, "a.b-c_d", "my.app")
    assert arn.text == CONSUMER


def test_the_registration_time_of_a_consumer_may_be_missing():
    arn = ConsumerArn.parse(f"{STREAM}/consumer/app")
    assert arn is not None
    assert arn.name == "app"


def test_a_text_that_is_no_consumer_arn_is_parsed_as_none():
    for text in ("", "app", STREAM, f"{STREAM}/consumer/", f"{STREAM}/consumer/a:b", f"x{STREAM}/consumer/a:1"):
        assert ConsumerArn.parse(text) is None
