"""No batches are planned for a quiet stream, and new data ends the pause at once."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.source.patient_planner import SETTLED_SECONDS

from fakes.spark.queries import IDLE, LOOKAHEAD, query
from fakes.spark.simulated_kinesis import NOW, SimulatedKinesis

HOUR = 3_600_000


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def quiet_job(kinesis, tmp_path, **properties):
    """A job that has read every record."""
    kinesis.add("a", [1])
    kinesis.add("b", [2])
    job = query(kinesis, tmp_path, **properties)
    job.run(quiet_plans=100)
    return job


def test_no_batch_is_planned_while_nothing_is_new(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    before = len(job.log)
    while kinesis.clock.ms < job.last.planned_ms + HOUR // 2:
        kinesis.clock.ms += 60_000
        assert not job.batch()
    assert len(job.log) == before


def test_a_quiet_query_runs_one_batch_without_rows_that_shows_its_figures(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path)
    assert job.batch()
    assert (job.planner.figures()["records"], job.planner.figures()["atTip"]) == (0, 0)
    while not job.batch():
        pass
    shown = job.planner.figures()
    assert (shown["records"], shown["lastBatchRecords"], shown["atTip"], shown["millisBehindLatest"]) == (2, 2, 1, 0)
    assert (job.last.batch, job.last.waits, len(job.log)) == (1, 1, 3)
    assert SETTLED_SECONDS * 1000 <= kinesis.clock.ms - job.last.planned_ms < 10_000
    for _ in range(100):
        assert not job.batch()


def test_a_record_that_comes_before_the_stream_is_settled_needs_one_batch(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    before = len(job.log)
    for _ in range(10):
        kinesis.shards["s/b"].times.append(3)
        assert job.batch()
        assert not job.batch()
    assert len(job.log) == before + 10


def test_the_figures_of_an_available_now_run_are_right_when_it_ends(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path)
    job.planner.prepare_available_now()
    while job.batch():
        shown = job.planner.figures()
    assert (shown["records"], shown["lastBatchRecords"], shown["atTip"], shown["millisBehindLatest"]) == (2, 2, 1, 0)


def test_no_empty_batch_follows_a_burst(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    assert [len(rows) for rows in job.rows.values()] == [2]
    kinesis.shards["s/b"].times += [3, 4]
    job.run()
    assert [len(rows) for rows in job.rows.values()] == [2, 2]


def test_no_empty_batch_follows_a_burst_of_an_aligned_job(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    assert [len(rows) for rows in job.rows.values()] == [0, 2]  # the first one reads first watermarks


def test_records_that_came_during_a_batch_are_read_by_the_next_at_once(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    kinesis.shards["s/b"].times.append(3)
    assert job.batch()
    kinesis.shards["s/b"].times.append(4)
    planned_ms = kinesis.clock.ms
    assert job.batch()
    assert job.last.planned_ms <= planned_ms + 100  # the time of a look


def test_a_pause_after_records_is_stored_nowhere_and_a_restart_repeats_none(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    job.restart()
    kinesis.shards["s/b"].times.append(3)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_query_pauses_although_a_batch_reads_some_of_the_shards_only(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path, max_records=1)
    before = len(job.log)
    job.run()
    assert len(job.log) == before
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_record_ends_the_pause_at_once(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    kinesis.shards["s/b"].times.append(3)
    assert job.batch()
    assert job.delivered()[-1] == ("s/b", "2")
    assert kinesis.watched is None


def test_the_end_of_a_shard_ends_the_pause_and_its_child_is_read(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    kinesis.close("a", kinesis.add("child", [9], ("a",)))
    job.run()
    assert job.delivered()[-1] == ("s/child", "1")


def test_a_shard_that_discovery_found_ends_the_pause(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    kinesis.discovered = [kinesis.add("new", [9])]
    job.run(200)
    assert job.delivered()[-1] == ("s/new", "1")


def test_a_restarted_query_stays_paused_but_for_the_batch_that_shows_its_figures(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    before = len(job.log)
    job.restart()
    kinesis.clock.ms += 10_000
    job.run(quiet_plans=100)
    assert len(job.log) == before + 1
    assert job.last.waits == 2


def test_tips_are_confirmed_once_an_hour_so_that_a_long_silence_is_no_gap(kinesis, tmp_path):
    job = quiet_job(kinesis, tmp_path)
    kinesis.clock.ms += HOUR
    assert job.batch()
    assert not job.batch()


def test_w3_held_records_need_only_the_batches_that_prove_the_silence_of_the_others(kinesis, tmp_path):
    kinesis.add("ahead", list(range(0, 50_000, 1000)))
    kinesis.add("silent", [])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000, IDLE: 60_000})
    while not job.delivered():
        job.batch()
    assert len(job.log) < 8
    assert kinesis.clock.ms < NOW + 65_000
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_query_that_never_ran_a_batch_plans_one_at_once(kinesis, tmp_path):
    kinesis.add("a", [])
    assert query(kinesis, tmp_path).batch()  # it stores the pinned start (P3)
