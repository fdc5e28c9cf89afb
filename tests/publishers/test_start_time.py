import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties import Properties
from recordpublisher.publishers.start_time import initial_position

POSITION = "flink.stream.initpos"
TIME = "flink.stream.initpos.timestamp"
FORMAT = "flink.stream.initpos.timestamp.format"
NOVEMBER = 1_700_000_000_000


def at(text, **more):
    return initial_position(Properties({POSITION: "AT_TIMESTAMP", TIME: text, **more}))


def test_a_new_job_starts_at_the_tip_unless_told_otherwise():
    assert initial_position(Properties({})) == StartingPosition.latest()


def test_trim_horizon():
    assert initial_position(Properties({POSITION: "trim_horizon"})) == StartingPosition.trim_horizon()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000", NOVEMBER),
        ("1700000000.123", NOVEMBER + 123),
        ("1.7e9", NOVEMBER),
        ("0", 0),
        ("2023-11-14T22:13:20.000+00:00", NOVEMBER),
        ("2023-11-14T22:13:20.123Z", NOVEMBER + 123),
        ("2023-11-14T22:13:20", NOVEMBER),
        ("2023-11-14T23:13:20+01:00", NOVEMBER),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_epoch_seconds_and_iso_8601_are_read(text, milliseconds):
    assert at(text) == StartingPosition.at_timestamp(milliseconds)


def test_the_given_format_is_tried_before_epoch_seconds():
    assert at("20231114", **{FORMAT: "yyyyMMdd"}) == StartingPosition.at_timestamp(1_699_920_000_000)


@pytest.mark.parametrize("text", ["yesterday", "-1", "nan", "inf", "1969-12-31T23:59:59Z", "2023-14-14", "1e400"])
def test_c2_a_time_that_cannot_be_read_names_key_value_and_what_is_valid(text):
    with pytest.raises(ConfigurationError) as raised:
        at(text)
    assert raised.value.key == TIME
    assert text in str(raised.value)
    assert "yyyy-MM-dd'T'HH:mm:ss.SSSXXX" in str(raised.value)
    assert "epoch seconds" in str(raised.value)


def test_c2_a_format_that_cannot_be_used_is_said():
    with pytest.raises(ConfigurationError, match="letter 'Y'"):
        at("14/11/2023", **{FORMAT: "dd/MM/YYYY"})


def test_c2_at_timestamp_needs_a_time():
    with pytest.raises(ConfigurationError, match=r"initpos\.timestamp' is not set"):
        initial_position(Properties({POSITION: "AT_TIMESTAMP"}))


def test_c2_an_unknown_position_lists_the_known_ones():
    with pytest.raises(ConfigurationError, match="TRIM_HORIZON, LATEST, AT_TIMESTAMP"):
        initial_position(Properties({POSITION: "EARLIEST"}))
