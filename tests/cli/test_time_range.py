"""`--from`, `--since` and `--until`."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.time_range import given_sequence_number, start_properties, time_ms
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.positions import StartingPosition

NOW_MS = 1_795_000_000_000


def position(start=None, since=None):
    return initial_position(rp.Properties(start_properties(start, since, NOW_MS)))


def test_without_both_the_properties_decide():
    assert start_properties(None, None, NOW_MS) == {}


@pytest.mark.parametrize("name", ["TRIM_HORIZON", "latest"])
def test_a_name_is_taken_in_any_case(name):
    assert start_properties(name, None, NOW_MS) == {"flink.stream.initpos": name.upper()}


@pytest.mark.parametrize("given", ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "1700000000"])
def test_a_time(given):
    assert position(start=given) == StartingPosition.at_timestamp(1_700_000_000_000)


@pytest.mark.parametrize(
    ("given", "ms"), [("250ms", 250), ("30s", 30_000), ("10m", 600_000), ("2 h", 7_200_000), ("1d", 86_400_000)]
)
def test_an_age(given, ms):
    assert position(since=given) == StartingPosition.at_timestamp(NOW_MS - ms)


@pytest.mark.parametrize(
    ("option", "start", "since"),
    [
        ("--from", "yesterday", None),
        ("--from", "", None),
        ("--since", None, "10"),
        ("--since", None, "-5m"),
        ("--since", "LATEST", "10m"),
    ],
)
def test_what_cannot_be_used_names_the_option(option, start, since):
    with pytest.raises(rp.ConfigurationError) as raised:
        start_properties(start, since, NOW_MS)
    assert raised.value.key == option


def test_the_end_names_its_option_too():
    with pytest.raises(rp.ConfigurationError, match="--until"):
        time_ms("--until", "tomorrow")


def test_a_sequence_number_is_no_time():
    sequence_number = "49017953680501650000000000000000000001795369627343000002"

    assert given_sequence_number(sequence_number) == sequence_number
    assert start_properties(sequence_number, None, NOW_MS) == {}
    assert given_sequence_number("1700000000") is given_sequence_number("LATEST") is None
    with pytest.raises(rp.ConfigurationError, match="both say where to start"):
        start_properties(sequence_number, "10m", NOW_MS)
