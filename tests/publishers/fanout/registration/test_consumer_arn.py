"""ConsumerArn: what the ARN of a stream consumer says."""

from recordpublisher.publishers.fanout.config import ConsumerArn

STREAM = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/a.b-c_d"


def test_an_arn_names_stream_and_consumer():
    arn = ConsumerArn.parse(f"{STREAM}/consumer/my.app:1525898737")
    assert arn is not None
    assert (arn.stream_arn, arn.stream, arn.name) == (STREAM, "a.b-c_d", "my.app")
    assert arn.text == f"{STREAM}/consumer/my.app:1525898737"


def test_the_time_of_registration_may_be_missing():
    arn = ConsumerArn.parse(f"{STREAM}/consumer/app")
    assert arn is not None
    assert arn.name == "app"


def test_anything_else_is_none():
    for text in ("", "app", STREAM, f"{STREAM}/consumer/", f"{STREAM}/consumer/a:b", f"x{STREAM}/consumer/a:1"):
        assert ConsumerArn.parse(text) is None
