"""A1: gauges of a silent or held shard keep growing."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.monitoring.shard_view import ShardView
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.sink import UnfinishedShard
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.positions import StartingPosition

from fakes.shard_entries import entry, in_stage, watermarked

DAY_MS = 86_400_000


def last_read(behind, at_ms=1_000):
    made = entry()
    made.metrics.millis_behind_latest, made.reading.last_read_ms = behind, at_ms
    return made


def behind(made, now_ms):
    return ShardView(made, now_ms, now_ms / 1000).millis_behind_latest


def test_behind_the_tip_the_gauge_grows_between_reads():
    assert [behind(last_read(500), now) for now in (1_000, 3_000)] == [500, 2_500]


def test_at_the_tip_the_gauge_stays_zero_between_reads():
    assert behind(last_read(0), 9_000) == 0


def test_the_gauge_of_a_held_shard_grows_although_its_last_read_was_at_the_tip():  # in the outage this gauge kept its value
    made = last_read(0)
    made.reading.queue.push(watermarked(5))
    assert behind(made, 61_000) == 60_000


def test_the_gauge_of_a_shard_that_is_not_read_for_long_grows_also_from_the_tip():
    assert [behind(last_read(0), now) for now in (16_000, 16_001)] == [0, 15_001]


def test_the_gauge_grows_from_the_first_failed_call():
    made = last_read(0)
    made.metrics.count_retry(TransientError("GetRecords", "InternalFailure", "no"))
    assert behind(made, 3_000) == 2_000


def unfinished(made, oldest_ms, now_ms):
    return ShardView(made, now_ms, 0.0, DAY_MS, unfinished=UnfinishedShard(2, oldest_ms))


def test_the_lag_is_the_age_of_the_oldest_record_wherever_it_waits():
    made = last_read(0)
    assert ShardView(made, 9_000, 9.0).lag_ms == 0
    assert unfinished(made, 4_000, 9_000).lag_ms == 5_000
    made.reading.queue.push(watermarked(5))
    made.emission.begin_write(5, 2_000)
    assert ShardView(made, 9_000, 9.0).lag_ms == 8_000
    assert unfinished(made, 1_000, 9_000).lag_ms == 8_000


def test_a_record_that_the_sink_has_not_finished_may_be_lost_like_one_that_was_not_read():
    made = entry()
    made.emission.state, made.reading.tip_ms = replace(made.state, arrival_ms=8_000), 9_000
    assert unfinished(made, 4_000, 9_000).time_to_retention_loss_ms == DAY_MS - 5_000


@pytest.mark.parametrize("made", [last_read(-1, None), entry()])
def test_before_the_first_read_the_gauge_is_minus_one_as_in_flink(made):
    assert behind(made, 99_000) == -1


def test_an_ended_shard_is_not_unread():
    made = last_read(0)
    in_stage(made, ShardStage.ENDED)
    assert behind(made, 10**9) == 0


def test_the_held_time_grows_while_the_shard_is_held():
    made = entry()
    made.status.held_seconds, made.status.held_since = 2.0, 10.0
    assert [ShardView(made, 0, now).held_ms for now in (10.0, 13.5)] == [2_000, 5_500]


def test_the_age_of_the_last_emission_counts_from_the_start_before_the_first():
    made = entry()
    made.owned_since_ms = 1_000
    assert ShardView(made, 5_000, 5.0).last_emit_age_ms == 4_000
    made.emission.last_emit_ms = 4_500
    assert ShardView(made, 5_000, 5.0).last_emit_age_ms == 500


def left(made, now_ms, retention_ms=DAY_MS):
    return ShardView(made, now_ms, 0.0, retention_ms).time_to_retention_loss_ms


def test_time_to_retention_loss_falls_while_nothing_is_emitted():
    made = entry()
    made.emission.state = replace(made.state, arrival_ms=1_000)
    assert [left(made, now) for now in (1_000, 5_000, DAY_MS + 3_000)] == [DAY_MS, DAY_MS - 4_000, -2_000]


def test_a_shard_at_its_tip_loses_nothing():  # S5: the later of last position and last tip
    made = entry()
    made.emission.state = replace(made.state, arrival_ms=1_000)
    made.reading.tip_ms = 90_000
    assert left(made, 90_000) == DAY_MS


def test_before_the_first_record_a_start_by_timestamp_counts():
    made = entry()
    made.emission.state = replace(made.state, start=StartingPosition.at_timestamp(2_000))
    assert left(made, 3_000) == DAY_MS - 1_000


def test_time_to_retention_loss_is_unknown_without_a_retention_or_a_time_of_reading():
    made = entry()
    assert left(made, 5) is None
    made.emission.state = replace(made.state, arrival_ms=1)
    assert left(made, 5, None) is None


def test_a_child_that_was_never_read_may_lose_what_came_since_its_parents_were_open():  # S5
    made = entry()
    made.emission.start_after_parents(5_000)
    assert left(made, 9_000) == DAY_MS - 4_000


def test_an_ended_shard_has_nothing_to_lose():
    made = entry()
    made.emission.state = replace(made.state, arrival_ms=1, ended=True)
    assert left(made, 5) is None
