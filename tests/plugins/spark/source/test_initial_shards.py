"""A query that starts at a position in each shard, over a simulated Kinesis. Record n of a shard has sequence number n."""

from __future__ import annotations

import json

import pytest

from recordpublisher.plugins.spark.options.start_by_shard import STARTS
from recordpublisher.publishers.errors import ConfigurationError, DataLossError

from fakes.spark.queries import query
from fakes.spark.simulated_kinesis import ARRIVED, SimulatedKinesis
from fakes.spark.worlds import check_exactly_once

END = {"iteratorType": "SHARD_END", "iteratorPosition": ""}


def after(sequence: str) -> dict[str, str]:
    return {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": sequence}


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def delivered(kinesis, tmp_path, starts, *, start="LATEST", **properties):
    given = {"flink.stream.initpos": start, STARTS.key: json.dumps(starts)}
    job = query(kinesis, tmp_path, **given, **properties)
    job.run()
    return sorted(job.delivered())


def test_a_shard_starts_at_the_record_that_is_named_and_one_that_is_not_named_starts_as_the_job(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [1, 2])
    kinesis.add("c", [1, 2])
    assert delivered(kinesis, tmp_path, {"a": "2", "b": after("1")}) == [("s/a", "2"), ("s/a", "3"), ("s/b", "2")]
    found = delivered(kinesis, tmp_path / "other", {"a": "2", "b": "LATEST"}, start="TRIM_HORIZON")
    assert found == [("s/a", "2"), ("s/a", "3"), ("s/c", "1"), ("s/c", "2")]


@pytest.mark.parametrize("starts", [{"parent": "2"}, {"parent": END}])
def test_s2_children_of_a_named_shard_are_read_from_their_beginning(kinesis, tmp_path, starts):
    kinesis.add("parent", [1, 2])
    left, right = kinesis.add("left", [3], ("parent",)), kinesis.add("right", [4], ("parent",))
    kinesis.close("parent", left, right)
    own = [] if starts["parent"] is END else [("s/parent", "2")]
    assert delivered(kinesis, tmp_path, starts) == sorted([("s/left", "1"), ("s/right", "1"), *own])


def test_ancestors_of_a_named_shard_count_as_read(kinesis, tmp_path):
    kinesis.add("parent", [1, 2])
    left, right = kinesis.add("left", [3, 4], ("parent",)), kinesis.add("right", [5], ("parent",))
    kinesis.close("parent", left, right)
    found = delivered(kinesis, tmp_path, {"left": "2"}, start="TRIM_HORIZON")
    assert found == [("s/left", "2"), ("s/right", "1")]


def test_c2_a_shard_that_does_not_exist_is_named_unless_it_was_read_to_its_end(kinesis, tmp_path):
    kinesis.add("a", [1])
    assert delivered(kinesis, tmp_path, {"a": "1", "gone": END}) == [("s/a", "1")]
    with pytest.raises(ConfigurationError, match="'startingPosition' is 'b': the stream does not have such a shard"):
        delivered(kinesis, tmp_path / "other", {"a": "1", "b": "5"})


@pytest.mark.parametrize("start", ["2", after("2")])
def test_s5_a_record_that_is_past_retention_is_a_loss(kinesis, tmp_path, start, caplog):
    kinesis.add("a", [1, 2, 3])
    kinesis.oldest_ms = ARRIVED + 2
    with pytest.raises(DataLossError, match="s/a no longer has the record 2, at which startingPosition begins"):
        delivered(kinesis, tmp_path, {"a": start})
    found = delivered(kinesis, tmp_path / "other", {"a": start}, **{"flink.state.dataloss": "CONTINUE"})
    assert found[-1] == ("s/a", "3")
    assert "continues at the oldest record" in caplog.text


def test_s5_a_position_that_was_at_the_tip_within_retention_is_no_loss(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.oldest_ms = ARRIVED + 3
    assert delivered(kinesis, tmp_path, {"a": {**after("2"), "seenMs": ARRIVED + 3}}) == [("s/a", "3")]
    with pytest.raises(DataLossError, match="s/a no longer has the record 2"):
        delivered(kinesis, tmp_path / "other", {"a": {**after("2"), "seenMs": ARRIVED + 2}})


@pytest.mark.parametrize("start", ["0", after("0")])
def test_the_number_that_kinesis_lists_for_the_beginning_of_a_shard_is_its_oldest_record(kinesis, tmp_path, start):
    kinesis.add("a", [2, 3], starting_sequence_number="0")
    kinesis.add("empty", [], starting_sequence_number="0")
    found = delivered(kinesis, tmp_path, {"a": start, "empty": start})
    assert found == [("s/a", "1"), ("s/a", "2")]


def test_s2_a_parent_that_only_the_first_listing_lacks_is_read(kinesis, tmp_path):
    kinesis.add("r", [1, 2, 3])
    kinesis.close("r", *(kinesis.add(f"c{n}", [10, 11], ("r",)) for n in range(2)))
    kinesis.unlisted = [["s/r"]]
    job = query(kinesis, tmp_path)
    job.run()
    check_exactly_once(job.delivered(), kinesis)
