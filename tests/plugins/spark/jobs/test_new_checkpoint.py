"""A query continues with a new checkpoint where another one has stopped: no record is lost, and none comes twice."""

from __future__ import annotations

import json

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.shard_starts import last_seen_ms, states_by_shard
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.query_positions import position_to_json
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from processes.command_line import ROOT
from processes.documentation_page import blocks
from spark_jobs.queries import WAIT_SECONDS, numbers, to_parquet, wait_for_rows

OLDEST = StartingPosition.trim_horizon()


@pytest.mark.parametrize(
    "state",
    [
        ShardState(OLDEST),
        ShardState(StartingPosition.latest()),
        ShardState(StartingPosition.at_timestamp(1_772_323_200_123)),
        ShardState(OLDEST, position=SequenceNumber("495903")),
        ShardState(OLDEST, position=SequenceNumber("495903", 7)),
        ShardState(OLDEST, position=SequenceNumber("495903"), seen_ms=1_772_323_200_123),
        ShardState(OLDEST, seen_ms=1_772_323_200_123),
        ShardState(StartingPosition.at_timestamp(1_772_323_200_123), seen_ms=1_772_323_300_000),
        ShardState(OLDEST, ended=True),
        ShardState(OLDEST, ended=True, seen_ms=1_772_323_200_123),
    ],
    ids=lambda state: str(state.position or state.start.type),
)
def test_each_position_of_a_shard_is_a_start_of_the_new_query(state):
    text = json.dumps({"shardId-000000000001": position_to_json(state)})
    assert states_by_shard("startingPosition", text, ["orders"]) == {"shardId-000000000001": state}


def test_the_last_time_at_the_tip_goes_with_the_position_which_may_itself_be_past_retention():
    state = ShardState(OLDEST, position=SequenceNumber("495903"), arrival_ms=1_000, tip_ms=3_000, seen_ms=2_000)
    assert position_to_json(state)["seenMs"] == 3_000


@pytest.mark.parametrize("start", [OLDEST, StartingPosition.at_timestamp(1_000)])
def test_the_last_time_at_the_tip_of_a_shard_without_a_record_goes_too_so_that_a_loss_is_noticed(start):  # S5
    text = json.dumps({"shardId-1": position_to_json(ShardState(start, tip_ms=3_000, seen_ms=2_000))})
    (state,) = states_by_shard("startingPosition", text, ["orders"]).values()
    assert last_seen_ms(state) == 3_000


def test_a_start_at_a_record_is_a_start_at_that_record():
    state = states_by_shard("startingPosition", '{"shardId-1": "495903"}', ["orders"])["shardId-1"]
    text = json.dumps({"shardId-1": position_to_json(state)})
    assert states_by_shard("startingPosition", text, ["orders"]) == {"shardId-1": state}


def test_several_streams_get_the_other_way_by_name(tmp_path):
    with pytest.raises(ConfigurationError, match=r"'streams' is 'a,b': .* a time before the old one stopped"):
        rp.spark.read_positions(None, "/checkpoint", {"streams": "a,b", "metadataLocation": str(tmp_path)})


def page_function():
    """The function that the page shows."""
    (block,) = [each for each in blocks(ROOT / "docs/spark/run-a-job.md", {}) if each.file_name == "old_positions.py"]
    names = {}
    exec(block.text, names)
    return names["old_positions"]


@pytest.mark.spark
@pytest.mark.timeout(3 * WAIT_SECONDS)
def test_a_query_with_a_new_checkpoint_reads_what_the_old_one_has_not_written(spark, kinesis, tmp_path):
    stream, old, new = kinesis("new-checkpoint"), tmp_path / "old", tmp_path / "new"
    stream.put(100)
    query = to_parquet(stream.load(spark, old), old)
    wait_for_rows(query, 100)
    stream.split(0)
    stream.put(40)
    wait_for_rows(query, 140)
    query.stop()
    stream.put(30)
    to_parquet(stream.load(spark, old, maxRecordsPerBatch=20), old, availableNow=True).awaitTermination()
    positions = page_function()(spark, str(old / "checkpoint"), stream.options(old))
    stream.put(50)
    stream.split(2)
    stream.put(25)
    given = {"startingPosition": positions, "flink.stream.initpos": "TRIM_HORIZON"}
    to_parquet(stream.load(spark, new, **given), new, availableNow=True).awaitTermination()
    assert (numbers(spark, old), numbers(spark, new)) == (list(range(170)), list(range(170, 245)))


@pytest.mark.spark
@pytest.mark.timeout(3 * WAIT_SECONDS)
def test_a_checkpoint_whose_last_batch_has_not_ended_is_refused_and_so_are_lost_claims(spark, kinesis, tmp_path):
    stream = kinesis("unfinished")
    stream.put(10)
    to_parquet(stream.load(spark, tmp_path), tmp_path, availableNow=True).awaitTermination()
    checkpoint, options = tmp_path / "checkpoint", stream.options(tmp_path)
    with pytest.raises(StateError, match=r"has no claims .* of this query"):
        rp.spark.read_positions(spark, str(checkpoint), {**options, "metadataLocation": str(tmp_path / "other")})
    with pytest.raises(StateError, match=r"has 0 sources that read clicks, .*: unfinished\."):
        rp.spark.read_positions(spark, str(checkpoint), {**options, "stream": "clicks"})
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / "commits" / str(last)).unlink()
    with pytest.raises(StateError, match=rf"batch {last} of .* has not ended"):
        rp.spark.read_positions(spark, str(checkpoint), options)
