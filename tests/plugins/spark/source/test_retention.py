"""Records past retention are named when the query starts again, or accepted as lost (S5)."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.source.batch_planner import QueryWarnings
from recordpublisher.plugins.spark.source.query_start import RetentionLeft
from recordpublisher.publishers.errors import DataLossError, TransientError

from fakes.spark.queries import options, query
from fakes.spark.simulated_kinesis import NOW, SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery

CONTINUE = {"flink.state.dataloss": "CONTINUE"}
DAY_AND_HOUR_MS = 25 * 3_600_000


def stand_still_for_a_day(kinesis: SimulatedKinesis, job: SimulatedQuery) -> None:
    """The query starts again after 25 h; the stream keeps its records for a day."""
    job.restart()
    kinesis.clock.ms += DAY_AND_HOUR_MS
    kinesis.oldest_ms = NOW + 3_600_000


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    made = SimulatedKinesis()
    made.add("a", [1, 2])
    return made


def test_a_gap_ends_the_query_with_its_shard_named(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(3)
    stand_still_for_a_day(kinesis, job)
    kinesis.shards["s/a"].times.append(3)
    with pytest.raises(DataLossError, match=r"past retention and lost: s/a after 2"):
        job.batch()


def test_a_gap_at_the_beginning_of_a_child_ends_the_query(kinesis, tmp_path):
    """The child was planned and not read, and its parent has left the offset."""
    job = query(kinesis, tmp_path)
    job.run(3)
    kinesis.close("a", kinesis.add("child", [3], ("a",)))
    job.read_task = lambda plan: {entry.key for entry in plan.shards} == {"s/a"}
    while set(job.last.shards) != {"s/child"}:
        job.batch()
    stand_still_for_a_day(kinesis, job)
    with pytest.raises(DataLossError, match=r"past retention and lost: s/child after its start"):
        job.batch()


def test_a_child_of_a_shard_that_expired_unread_began_when_that_one_was_last_read(kinesis, tmp_path):
    job = query(kinesis, tmp_path, **CONTINUE)
    job.run(3)
    last_tip_ms = kinesis.tip_read_ms
    stand_still_for_a_day(kinesis, job)
    kinesis.add("child", [3], ("a",))
    del kinesis.shards["s/a"]
    job.batch()
    job.batch()
    assert job.last.shards["s/child"].state.seen_ms == last_tip_ms


def test_a_quiet_stream_is_no_gap_after_any_time(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(3)
    stand_still_for_a_day(kinesis, job)
    job.run(3)
    kinesis.shards["s/a"].times.append(3)
    job.run(40)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_tip_confirmed_within_retention_is_no_gap(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(3)
    job.restart()
    kinesis.oldest_ms = NOW  # the records are older, the tip is not
    job.run(3)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_the_job_goes_on_without_what_is_past_retention_if_told_so(kinesis, tmp_path):
    """Its tasks count the gap where they meet it."""
    job = query(kinesis, tmp_path, **CONTINUE)
    job.run(3)
    stand_still_for_a_day(kinesis, job)
    kinesis.shards["s/a"].times.append(3)
    job.run(40)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_shard_that_nobody_lists_any_more_makes_way_for_its_children_if_told_so(kinesis, tmp_path, caplog):
    job = query(kinesis, tmp_path, **CONTINUE)
    job.run(3)
    job.restart()
    kinesis.add("child", [3], ("a",))
    del kinesis.shards["s/a"]
    job.run(40)
    assert job.delivered()[-1] == ("s/child", "1")
    assert "the query continues because flink.state.dataloss=CONTINUE" in caplog.text
    assert "Set flink.state.dataloss" not in caplog.text  # it is set


@pytest.mark.parametrize(("does_not_tell", "listings"), [(False, 1), (False, 5), (True, 2)])
def test_a_shard_that_a_listing_lacks_is_lost_only_if_the_service_does_not_find_it(
    kinesis, tmp_path, does_not_tell, listings
):
    """Where the service does not tell, three listings in a row decide."""
    kinesis.does_not_tell = does_not_tell
    job = query(kinesis, tmp_path)
    job.run(3)
    job.restart()
    kinesis.unlisted = [["s/a"]] * listings
    kinesis.shards["s/a"].times.append(3)
    job.run(40)
    assert sorted(job.delivered()) == sorted(job.expected())


@pytest.mark.parametrize("does_not_tell", [False, True])
def test_a_shard_that_the_service_does_not_find_is_lost(kinesis, tmp_path, does_not_tell):
    kinesis.does_not_tell = does_not_tell
    kinesis.add("b", [1])
    job = query(kinesis, tmp_path)
    job.run(3)
    job.restart()
    del kinesis.shards["s/a"]
    with pytest.raises(DataLossError, match="past retention and lost: s/a after 2"):
        job.batch()


def fall_behind(kinesis: SimulatedKinesis, job: SimulatedQuery, hours: float) -> int:
    """Records arrived, and the query plans its next batch so many hours after it last was at the tip. Returns the time left, in ms."""
    kinesis.shards["s/a"].times.append(len(kinesis.shards["s/a"].times))
    last_tip_ms = max(kinesis.tip_read_ms, *kinesis.watched_tips.values())
    kinesis.clock.ms = last_tip_ms + round(hours * 3_600_000)
    assert job.batch()
    return job.planner.figures()["timeToRetentionLossMs"]


def test_progress_has_the_time_until_the_worst_shard_loses_records(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    assert job.planner.figures() is None
    job.run(3)
    assert job.planner.figures()["timeToRetentionLossMs"] is None  # the retention is not known

    kinesis.kept_ms = 24 * 3_600_000
    job.run(3)
    assert fall_behind(kinesis, job, 10) == 14 * 3_600_000 - 100  # the batch took 0.1 s


def test_a_quiet_stream_that_was_read_to_its_end_has_its_whole_retention_left(kinesis, tmp_path):
    """As `timeToRetentionLossMs` of a worker."""
    kinesis.kept_ms = 24 * 3_600_000
    job = query(kinesis, tmp_path)
    job.run(3)
    for _ in range(5):
        kinesis.clock.ms += 3_600_000
        kinesis.has_new_data()
        assert job.planner.figures()["timeToRetentionLossMs"] > kinesis.kept_ms - 60_000
        job.run(3)


def test_no_time_is_added_while_the_service_is_away(kinesis, tmp_path):
    kinesis.kept_ms = 24 * 3_600_000
    job = query(kinesis, tmp_path)
    job.run(3)
    kinesis.failure = TransientError("GetRecords", "Unavailable", "away")
    kinesis.clock.ms += 3_600_000
    kinesis.has_new_data()
    assert job.planner.figures()["timeToRetentionLossMs"] <= 23 * 3_600_000


def test_a_query_that_is_far_behind_warns(kinesis, tmp_path, caplog):
    kinesis.kept_ms = 24 * 3_600_000
    job = query(kinesis, tmp_path)
    job.run(3)
    fall_behind(kinesis, job, 20)
    assert (
        "records of s/a will be lost in 4.0 h unless the query reads them before: the stream keeps records for 24 h"
        in caplog.text
    )


def test_the_warning_comes_from_four_fifths_of_the_retention_on_and_again_only_after_the_query_caught_up(
    tmp_path, caplog
):
    warnings, counts = QueryWarnings(options(tmp_path)), []
    for left in (None, 21, 19, 10, -5, 90, 19):  # percent of the retention
        warnings.retention_left(None if left is None else RetentionLeft("s/a", left, 100))
        counts.append(caplog.text.count("will be lost in"))
    assert counts == [0, 0, 1, 1, 1, 1, 2]


def test_a_restart_is_not_looked_into_twice(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(3)
    kinesis.oldest_ms = NOW + 10_000_000  # a running job is at its records, whatever the service keeps
    kinesis.shards["s/a"].times.append(3)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())
