"""FanOutConfig: properties are parsed, and wrong ones are refused before anything runs (C2)."""

import warnings

import pytest

from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    RecordPublisherError,
    ThrottledError,
)
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.config import FanOutConfig, RecoverableErrors, RegistrationType
from recordpublisher.publishers.properties.properties import Properties

from fakes.fanout_service import ARN, EFO

NONE = {"flink.stream.efo.registration": "NONE"}


def config(**properties):
    return FanOutConfig.of(Properties({**EFO, **properties}))


def check(properties, streams):
    FanOutRecordPublisherFactory.check(Properties(properties), streams)


def test_defaults():
    made = config()
    assert (made.registration, made.consumer_name, made.deregisters) == (RegistrationType.LAZY, "app", True)
    assert (made.subscribe_timeout, made.inactivity_timeout, made.unread_timeout) == (60, 20, 60)
    assert (made.register_timeout, made.deregister_timeout) == (60, 60)
    assert (made.retries.subscribe.max_outage_ms, made.retries.subscribe.base_ms) == (900_000, 1_000)


def test_each_property_is_parsed():
    made = config(
        **{
            "flink.stream.efo.registration": "eager",
            "flink.stream.efo.deregister": "never",
            "flink.stream.registerstreamconsumer.timeout": "7",
            "flink.stream.deregisterstreamconsumer.timeout": "8",
            "flink.shard.subscribetoshard.timeout": "9",
            "flink.shard.subscribetoshard.maxretries": "3",
        }
    )
    assert (made.registration, made.deregisters) == (RegistrationType.EAGER, False)
    assert (made.register_timeout, made.deregister_timeout, made.subscribe_timeout) == (7, 8, 9)
    assert made.retries.subscribe.max_retries == 3


def test_the_flips_retries_of_listing_consumers_are_those_of_the_call_that_finds_one():
    made = config(**{f"flink.stream.liststreamconsumers.{key}": 7 for key in ("maxretries", "backoff.base")})

    assert (made.retries.describe_consumer.max_retries, made.retries.describe_consumer.base_ms) == (7, 7)


@pytest.mark.parametrize("registration", ["LAZY", "EAGER"])
def test_lazy_and_eager_need_a_consumer_name(registration):
    with pytest.raises(ConfigurationError, match="no valid enhanced fan-out consumer name is set") as caught:
        check({"flink.stream.efo.registration": registration}, ["orders"])
    assert (caught.value.key, caught.value.value) == ("flink.stream.efo.consumername", None)


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "x" * 129])
def test_a_consumer_name_must_fit_the_services_pattern(name):
    with pytest.raises(ConfigurationError) as caught:
        config(**{"flink.stream.efo.consumername": name})
    assert (caught.value.key, caught.value.value) == ("flink.stream.efo.consumername", name)
    assert "1 to 128" in caught.value.valid


def test_none_needs_an_arn_for_each_stream_and_names_the_missing_keys():
    properties = {**NONE, "flink.stream.efo.consumerarn.orders": ARN}
    check(properties, ["orders"])
    with pytest.raises(ConfigurationError) as caught:
        check(properties, ["orders", "clicks", "arn:aws:kinesis:us-east-1:1:stream/taps"])
    assert caught.value.key == "flink.stream.efo.consumerarn.clicks"
    assert "flink.stream.efo.consumerarn.clicks, flink.stream.efo.consumerarn.taps" in str(caught.value)


def test_none_needs_no_consumer_name():
    check({**NONE, "flink.stream.efo.consumerarn.orders": ARN}, ["orders"])


def test_stream_names_in_keys_match_without_case():
    arn = ARN.replace("orders", "Orders")
    made = FanOutConfig.of(Properties({**NONE, "flink.stream.efo.consumerarn.ORDERS": arn}))
    made.check_streams(["Orders"])
    given = made.configured_arn("Orders")
    assert given is not None
    assert given.text == arn


def test_of_two_streams_that_differ_in_case_the_arn_decides():
    with pytest.raises(ConfigurationError, match=r"consumerarn\.Orders"):
        check({**NONE, "flink.stream.efo.consumerarn.orders": ARN}, ["orders", "Orders"])


@pytest.mark.parametrize(
    "arn", ["", "consumer", "arn:aws:kinesis:us-east-1:1:stream/orders", ARN.replace("orders", "o")]
)
def test_an_arn_must_belong_to_a_consumer_of_the_stream(arn):
    with pytest.raises(ConfigurationError, match=r"flink\.stream\.efo\.consumerarn\.orders.*stream/orders/consumer"):
        check({**NONE, "flink.stream.efo.consumerarn.orders": arn}, ["orders"])


def test_none_never_deregisters():
    assert not FanOutConfig.of(Properties(NONE)).deregisters


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flink.stream.efo.registration", "SOMETIMES"),
        ("flink.stream.efo.deregister", "perhaps"),
        ("flink.shard.subscribetoshard.timeout", "soon"),
        ("flink.shard.subscribetoshard.timeout", "0"),
        ("flink.shard.subscribetoshard.maxretries", "-1"),
        ("flink.shard.subscribetoshard.backoff.base", "3000"),  # above the maximum, 2000
    ],
)
def test_an_invalid_value_is_an_error_with_its_key(key, value):
    with pytest.raises(ConfigurationError) as caught:
        config(**{key: value})
    assert caught.value.key == key


def test_every_key_is_declared():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Properties(
            {
                **EFO,
                "flink.stream.efo.consumerarn.orders": ARN,
                "flink.stream.efo.deregister": "NEVER",
                "flink.shard.consumer.error.recoverable[0].exception": "X",
            }
        ).check()


def test_tags_are_pairs_separated_by_commas():
    assert config().tags is None
    assert config(**{"flink.stream.efo.tags": "team=blue, cost center=a=b ,empty="}).tags == {
        "team": "blue",
        "cost center": "a=b",
        "empty": "",
    }


@pytest.mark.parametrize(
    "given",
    ["team", "=blue", "a=1,a=2", "k" * 129 + "=v", "k=" + "v" * 257, ",".join(f"k{number}=v" for number in range(51))],
)
def test_tags_that_the_service_would_refuse_are_an_error(given):
    with pytest.raises(ConfigurationError) as caught:
        config(**{"flink.stream.efo.tags": given})
    assert caught.value.key == "flink.stream.efo.tags"


KEY = "flink.shard.consumer.error.recoverable"
DENIED = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "no")


def declared(*names):
    return RecoverableErrors.of(Properties({f"{KEY}[{index}].exception": name for index, name in enumerate(names)}))


def caused_by(error):
    outer = RecordPublisherError("outside")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("AccessDeniedException", DENIED),
        ("software.amazon.awssdk.services.kinesis.model.AccessDeniedException", DENIED),
        ("FatalKinesisError", DENIED),
        ("KinesisError", DENIED),  # a base class counts, as in Java
        ("recordpublisher.publishers.errors.FatalKinesisError", DENIED),
        ("ConnectionResetError", caused_by(ConnectionResetError())),
        ("builtins.ConnectionResetError", caused_by(ConnectionResetError())),
        ("OSError", caused_by(ConnectionResetError())),
    ],
)
def test_a_name_matches_classes_and_codes_through_the_chain_of_causes(name, error):
    assert error in declared(name)


def test_all_indices_are_used():
    assert DENIED in declared("java.net.SocketException", "ValueError", "AccessDeniedException")


def test_undeclared_errors_are_not_recoverable():
    assert DENIED not in declared()
    assert DENIED not in declared("ThrottledError", "other.FatalKinesisError")
    assert ThrottledError("a", "LimitExceededException", "") not in declared("AccessDeniedException")


@pytest.mark.parametrize(
    "given",
    [
        {f"{KEY}[1].exception": "X"},
        {f"{KEY}[0].exception": "X", f"{KEY}[2].exception": "Y"},
        {f"{KEY}[a].exception": "X"},
        {f"{KEY}[0].error": "X"},
        {f"{KEY}[0].exception": "not a name"},
        {f"{KEY}[0].exception": ""},
    ],
)
def test_an_invalid_declaration_is_an_error_with_an_example(given):
    with pytest.raises(ConfigurationError, match=r"recoverable\[0\]\.exception=<name>"):
        RecoverableErrors.of(Properties(given))
