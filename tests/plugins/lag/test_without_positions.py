"""What is told of a job that stores no positions."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.lag.job_state import effect_of_no_positions
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

PROPERTIES = {"flink.stream.initpos": "LATEST"}


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("LATEST", "misses the records that arrived since the last run"),
        ("TRIM_HORIZON", "reads all records again"),
        ("1h", "begins 1h before the time of the start"),
    ],
)
def test_each_start_of_a_job_without_positions_is_told_with_the_key_that_helps(start, words):
    told = effect_of_no_positions(rp.MapSink, rp.Properties({"flink.stream.initpos": start}))

    assert told == f"no positions are stored: each start {words}; set flink.state.uri"


def test_nothing_is_told_where_the_sink_or_a_store_has_the_positions():
    assert effect_of_no_positions(JsonlSink, rp.Properties(PROPERTIES)) == ""
    assert effect_of_no_positions(rp.MapSink, rp.Properties({**PROPERTIES, "flink.state.uri": "state"})) == ""
