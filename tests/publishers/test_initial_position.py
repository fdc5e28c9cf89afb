"""Where a new job starts."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher import ConfigurationError, PositionType, Properties, StartingPosition
from recordpublisher.publishers.initial_position import (
    initial_position,
    initial_timestamp_ms,
    named_start,
    time_ms,
)

FORMAT = "flink.stream.initpos.timestamp.format"


def start_at(timestamp: object, **more: object) -> Properties:
    return Properties({"flink.stream.initpos": "at_timestamp", "flink.stream.initpos.timestamp": timestamp, **more})


@pytest.mark.parametrize("name", ["TRIM_HORIZON", "LATEST"])
def test_trim_horizon_and_latest_are_accepted(name):
    assert initial_position(Properties({"flink.stream.initpos": name})).type == PositionType(name)


@pytest.mark.parametrize(
    "timestamp",
    [
        "1459799926.480",
        1459799926.480,
        "1.459799926480E9",
        "2016-04-04T19:58:46.480-00:00",
        "2016-04-04T19:58:46.480Z",
        "2016-04-04T21:58:46.480+02:00",
        1459799926480,
        datetime(2016, 4, 4, 21, 58, 46, 480_000, timezone(timedelta(hours=2))),
    ],
)
@pytest.mark.parametrize("properties", [start_at, lambda time: Properties(start=time)], ids=["timestamp", "start"])
def test_a_start_by_time_is_epoch_seconds_or_milliseconds_iso_or_a_datetime(timestamp, properties):
    position = initial_position(properties(timestamp))

    assert (position.type, position.timestamp_ms) == (PositionType.AT_TIMESTAMP, 1459799926480)
    assert time_ms("until", timestamp) == 1459799926480


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "2016-04-04 19:58:46",
            "no zone; write 2016-04-04T19:58:46Z for UTC, or another such as 2016-04-04T19:58:46+01:00",
        ),
        (1764225000123456, "these may be microseconds; in milliseconds it is 1764225000123"),
        ("1764225000123456789", "these may be nanoseconds; in milliseconds it is 1764225000123"),
        (
            "49590338271490256608559692538361571095921575989136588898",
            "a sequence number is a place in one shard, not a",
        ),
    ],
)
def test_what_is_wrong_with_a_time_is_told_with_the_value_as_it_was_given(given, words):
    readers = [
        lambda: time_ms("until", given),
        lambda: initial_position(Properties(start=given)),
        lambda: initial_position(start_at(given)),
    ]
    for read in readers:
        with pytest.raises(ConfigurationError) as raised:
            read()
        assert words in str(raised.value)
        assert repr(str(given)) in str(raised.value).replace(repr(given), repr(str(given)))


@pytest.mark.parametrize("start", [datetime(2016, 4, 4), "yesterday", -5, float("nan"), True])
def test_a_start_that_is_no_time_is_an_error_that_names_what_is(start):
    with pytest.raises(ConfigurationError, match=r"Valid: .*time"):
        initial_position(Properties(start=start))


@pytest.mark.parametrize(
    ("java", "timestamp"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2016-04-04T19:58:46.480+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2016-04-04T19:58:46.480Z"),
        ("dd/MM/yyyy HH:mm:ss,SSS", "04/04/2016 19:58:46,480"),
        ("yyyyMMddHHmmss.SSSZ", "20160404215846.480+0200"),
        ("hh:mm:ss.SSS a 'o''clock' yyyy-MM-dd 100%", "07:58:46.480 PM o'clock 2016-04-04 100%"),
    ],
)
def test_a_java_format_is_parsed(java, timestamp):
    assert initial_timestamp_ms(start_at(timestamp, **{FORMAT: java})) == 1459799926480


def test_the_examples_of_flinks_connector_are_parsed():
    assert initial_timestamp_ms(start_at("2020-08-13T09:18:00.0+01:00")) == 1597306680000
    assert initial_timestamp_ms(start_at("2020-08-13T09:23", **{FORMAT: "yyyy-MM-dd'T'HH:mm"})) == 1597310580000


@pytest.mark.parametrize(("timestamp", "java"), [("stillUnparsable", "yyyy-MM-dd"), ("2016-03-14", "InvalidPattern")])
def test_a_text_that_does_not_match_the_format_is_an_error(timestamp, java):
    with pytest.raises(ConfigurationError, match=r"flink\.stream\.initpos\.timestamp"):
        initial_position(start_at(timestamp, **{FORMAT: java}))


def test_a_given_format_is_tried_before_epoch_seconds():
    assert initial_timestamp_ms(start_at("20160404", **{FORMAT: "yyyyMMdd"})) == 1459728000000
    assert initial_timestamp_ms(start_at("1459799926.480", **{FORMAT: "yyyyMMdd"})) == 1459799926480


@pytest.mark.parametrize(
    "timestamp", ["yesterday", "-1", "nan", "1e999", "2016-13-01", "2016-04-04T", "1_0", "1969-12-31"]
)
def test_an_invalid_timestamp_is_an_error_with_key_value_and_valid_values(timestamp):
    with pytest.raises(ConfigurationError, match=r"flink\.stream\.initpos\.timestamp'.*Valid: epoch seconds") as raised:
        initial_position(start_at(timestamp))

    assert raised.value.value == timestamp


def test_a_missing_timestamp_is_an_error():
    with pytest.raises(ConfigurationError, match=r"timestamp' is required: flink\.stream\.initpos is AT_TIMESTAMP"):
        initial_position(start_at(None))


def test_a_format_with_unknown_letters_is_an_error():
    with pytest.raises(ConfigurationError, match=r"timestamp\.format' is 'EEE yyyy': the letter E"):
        initial_position(start_at("Mon 2016", **{FORMAT: "EEE yyyy"}))


@pytest.mark.parametrize(("java", "letters"), [("H0H", "H"), ("yyyy-MM yyyy", "y"), ("HH X Z", "X, Z")])
def test_a_repeated_field_is_an_error(java, letters):
    """Python's strptime would raise an error of its regular expression, which does not name the property."""
    with pytest.raises(ConfigurationError, match=rf"timestamp\.format' is '{java}': .*letters {letters}\."):
        initial_position(start_at("0", **{FORMAT: java}))


@pytest.mark.parametrize(("java", "timestamp"), [("dd/MM HH:mm", "04/04 19:58"), ("HH:mm", "19:58"), ("'y'", "y")])
def test_a_format_without_a_year_is_an_error(java, timestamp):
    """Python's strptime would take 1900; from 3.13 on it warns of a day without a year."""
    with pytest.raises(ConfigurationError, match=r"timestamp\.format' is .*: there is no year, the letter y\."):
        initial_position(start_at(timestamp, **{FORMAT: java}))


@given(st.text(), st.text())
def test_any_text_is_parsed_or_is_a_configuration_error(timestamp, java):
    with contextlib.suppress(ConfigurationError):
        assert initial_timestamp_ms(start_at(timestamp, **{FORMAT: java})) >= 0


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ("earliest", StartingPosition.trim_horizon()),
        ("Latest", StartingPosition.latest()),
        ("1h", StartingPosition(PositionType.LATEST, ago_ms=3_600_000)),
        (timedelta(minutes=1), StartingPosition(PositionType.LATEST, ago_ms=60_000)),
        (datetime(2026, 1, 1, tzinfo=UTC), StartingPosition.at_timestamp(1_767_225_600_000)),
        (1_767_225_600, StartingPosition.at_timestamp(1_767_225_600_000)),
    ],
)
def test_a_start_has_the_same_words_everywhere(given, start):
    assert named_start("start", given) == start


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("oldest", "earliest"),
        ("Beginning", "earliest"),
        ("erliest", "earliest"),
        ("TRIM_HORIZN", "TRIM_HORIZON"),
        ("trim-horizon", "TRIM_HORIZON"),
        ("newest", "LATEST"),
        ("lastest", "LATEST"),
    ],
)
def test_a_wrong_start_is_told_what_was_meant(given, meant):
    hint = rf"is '{given}': did you mean '{meant}'\? Valid: TRIM_HORIZON"
    with pytest.raises(ConfigurationError, match=f"setting 'start' {hint}"):
        named_start("start", given)
    with pytest.raises(
        ConfigurationError, match=rf"property 'flink.stream.initpos' {hint}, LATEST, .*, earliest, an age"
    ):
        initial_position(Properties({"flink.stream.initpos": given}))


@pytest.mark.parametrize("given", ["yesterday", "7 fortnights"])
def test_a_start_that_is_like_no_word_gets_no_hint(given):
    with pytest.raises(ConfigurationError, match=f"'{given}'. Valid"):
        named_start("start", given)


@pytest.mark.parametrize("given", ["erliest", "AT_TIMESTAMP", [1], timedelta(hours=-1), datetime(2026, 1, 1)])
def test_a_start_that_is_none_is_refused_by_the_name_of_its_argument(given):
    with pytest.raises(
        ConfigurationError,
        match=r"setting 'start' is .* Valid: TRIM_HORIZON \(or earliest\), LATEST, an age",
    ):
        named_start("start", given)
