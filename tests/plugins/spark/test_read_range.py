"""`startingPosition` and `endingPosition` of a batch read."""

from __future__ import annotations

import pytest

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.read_range import ReadRange
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard

SEQUENCE = "49590338271490256608559692538361571095921575989136588898"
NOW = 1_800_000_000_000


def parsed(**given: str) -> ReadRange:
    options = SparkOptions.parse({"streams": "s", "aws.region": "us-east-1", **given}, keeps_claims=False)
    return ReadRange.parse(options.properties, options.streams, NOW)


def test_without_positions_a_read_goes_from_the_oldest_record_to_now():
    assert parsed() == ReadRange(Starts(StartingPosition.trim_horizon()), EndPosition(NOW))


@pytest.mark.parametrize("time", ["2023-08-30T19:00:05Z", "1693422005", "AT_TIMESTAMP 2023-08-30T19:00:05Z"])
def test_start_and_end_at_a_time(time):
    positions = parsed(startingPosition=time, endingPosition=time)
    assert positions.starts.default == StartingPosition.at_timestamp(1_693_422_005_000)
    assert positions.end == EndPosition(1_693_422_005_000)


def test_positions_by_shard_choose_the_shards():
    positions = parsed(startingPosition='{"a": "TRIM_HORIZON", "b": "5"}', endingPosition='{"a": "17", "b": "NOW"}')
    assert positions.shards == {"a", "b"}
    assert positions.of(Shard("s", "a")) == (StartingPosition.trim_horizon(), EndPosition(NOW, 17))
    assert positions.of(Shard("s", "b")) == (StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5"), EndPosition(NOW))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingPosition": "tomorrow"}, "setting 'endingPosition' is 'tomorrow'. Valid: NOW, a time"),
        (
            {"endingPosition": "2026-11-25 10:00:00.123"},
            "setting 'endingPosition' is '2026-11-25 10:00:00.123': it has no zone; write 2026-11-25T10:00:00.123000Z",
        ),
        (
            {"endingPosition": "1764225000123456"},
            "'endingPosition' is '1764225000123456': these may be micro",
        ),
        (
            {"endingTimestamp": "1764225000123456"},
            "'endingTimestamp' is '1764225000123456': these may be micro",
        ),
        (
            {"startingTimestamp": "1764225000123456789"},
            "'startingTimestamp' is '1764225000123456789': these",
        ),
        ({"endingPosition": SEQUENCE}, f"'endingPosition' is '{SEQUENCE}': a sequence number is a place in"),
        (
            {"startingPosition": SEQUENCE},
            f"'startingPosition' is '{SEQUENCE}': a sequence number is a place in",
        ),
        ({"startingPosition": SEQUENCE}, "or JSON by shard"),
        (
            {"startingPosition": "2100-01-01T00:00:00Z"},
            "'startingPosition' is '2100-01-01T00:00:00.000Z'. Valid",
        ),
        ({"endingPosition": '{"a": "' + "1" * 5000 + '"}'}, "setting 'endingPosition' is '1111"),
        ({"endingPosition": '{"a": 5}'}, "setting 'endingPosition' is '5'"),
        ({"endingPosition": '{"a": "x"}'}, "setting 'endingPosition' is 'x'"),
        ({"endingPosition": "{a}"}, "setting 'endingPosition'"),
        ({"startingPosition": '{"a": "5"}', "endingPosition": '{"b": "5"}'}, "names a, b"),
        (
            {"startingPosition": "2026-11-25T10:00:00Z", "endingPosition": "2026-11-25T09:00:00Z"},
            "setting 'endingPosition' is '2026-11-25T09:00:00Z': the read would end before it starts",
        ),
        ({"startingPosition": "latest"}, "a batch read ends at the tip"),
        ({"startingPosition": '{"a": "LATEST"}'}, "after a record or at the tip is valid only for a query"),
    ],
)
def test_c2_a_wrong_position_is_named(options, words):
    with pytest.raises(ConfigurationError) as raised:
        parsed(**options)
    assert words in str(raised.value)


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_c2_positions_by_shard_are_for_one_stream(option):
    with pytest.raises(
        ConfigurationError, match=r"'streams' is 's,t': the positions in .* are given by shard.* Valid: one stream"
    ):
        parsed(streams="s,t", **{option: '{"a": "5"}'})


def test_an_age_counts_from_now():
    assert parsed(startingPosition="1h").starts.default == StartingPosition.at_timestamp(NOW - 3_600_000)
