"""`startingPosition` as JSON: in our words, and as qubole's and awslabs' connectors store positions."""

from __future__ import annotations

import json

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.options.start_by_shard import starts_by_shard, with_starts
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition

OLDEST = StartingPosition.trim_horizon()


def starts_of(value: object, key: str = "startingposition", streams: str = "orders"):
    given = {"streams": streams, key: value if isinstance(value, str) else json.dumps(value)}
    options = SparkOptions.parse(given, keeps_claims=False)
    return starts_by_shard(options.properties, options.streams)


def at(sequence: str) -> ShardState:
    return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, sequence))


def test_a_sequence_number_is_the_first_record_to_read():
    given = {"a": "17", "b": "TRIM_HORIZON", "c": "latest"}
    assert starts_of(given) == {"a": at("17"), "b": ShardState(OLDEST), "c": ShardState(StartingPosition.latest())}


@pytest.mark.parametrize("key", ["startingposition", "kinesis.startingposition", "initialposition"])
def test_positions_that_other_connectors_stored_mean_what_they_mean_there(key):
    stored = {
        "metadata": {"streamName": "orders", "batchId": "7"},
        "a": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "17"},
        "b": {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "18"},
        "c": {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1700000000123"},
        "d": {"iteratorType": "SHARD_END", "iteratorPosition": ""},
        "e": {"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""},
    }
    assert starts_of(stored, key) == {
        "a": ShardState(OLDEST, position=SequenceNumber("17")),
        "b": at("18"),
        "c": ShardState(StartingPosition.at_timestamp(1_700_000_000_123)),
        "d": ShardState(OLDEST, ended=True),
        "e": ShardState(OLDEST),
    }


@pytest.mark.parametrize(("is_last", "sub_sequence"), [("false", 3), ("true", -1)])
def test_awslabs_positions_may_lie_inside_an_aggregate(is_last, sub_sequence):
    entry = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "17"}
    stored = {"a": {**entry, "subSequenceNumber": "3", "isLast": is_last}}
    assert starts_of(stored)["a"].position == SequenceNumber("17", sub_sequence)


def test_without_json_there_is_no_start_by_shard():
    assert starts_of("TRIM_HORIZON") == {}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{a}", "startingPosition"),
        ({}, "startingPosition"),
        ({"a": 5}, "is '5'"),
        ({"a": "abc"}, '"TRIM_HORIZON" or, in a query, "LATEST"'),
        ({"a": {"iteratorType": "SOON"}}, "an iteratorType of TRIM_HORIZON"),
        ({"a": {"iteratorType": "AFTER_SEQUENCE_NUMBER"}}, "an iteratorPosition of digits for AFTER_SEQUENCE_NUMBER"),
        ({"a": {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1764225000123456"}}, "these may be microseconds"),
        ({"metadata": {"streamName": "clicks"}, "a": "5"}, "these positions belong to the stream 'clicks'"),
        ({"metadata": {"streamName": "orders"}}, "startingPosition"),
    ],
)
def test_c2_a_wrong_start_is_named(value, words):
    with pytest.raises(ConfigurationError) as raised:
        starts_of(value)
    assert words in str(raised.value)


def test_c2_positions_by_shard_are_for_one_stream():
    with pytest.raises(ConfigurationError, match=r"are given by shard, and do not name a stream\. Valid: one stream"):
        starts_of({"a": "5"}, streams="orders,clicks")


def test_c2_two_starts_by_shard_are_an_error():
    with pytest.raises(ConfigurationError, match="cannot be combined with"):
        with_starts({"startingposition": '{"a": "5"}', "kinesis.startingposition": '{"a": "6"}'})
