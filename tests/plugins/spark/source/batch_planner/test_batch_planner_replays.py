"""Planning after restarts, without Spark: claims are replayed with the same rows, and lost claims lose no record."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

import pytest

from recordpublisher.publishers.errors import StateError, TransientError

from fakes.spark.queries import FAN_OUT, options, query
from fakes.spark.simulated_kinesis import MemoryClaims, SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery

REPLAY = {"onMetadataLoss": "REPLAY"}


def run_next(job) -> None:
    """Run batches until one has tasks."""
    while not job.batch() or job.last.waits:
        pass


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def test_every_replay_of_a_batch_gives_the_same_rows_although_more_arrived_meanwhile(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    kinesis.add("b", [3])
    job = query(kinesis, tmp_path)
    job.batch()
    before = job.rows[1]
    kinesis.shards["s/a"].times += [9, 10]
    job.restart()
    job.run_again()
    assert job.rows[1] == before


def test_a_fan_out_job_subscribes_for_the_first_read_only(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **FAN_OUT)
    job.batch()
    kinesis.shards["s/a"].times.append(3)
    run_next(job)
    kinesis.reads.clear()
    job.rows_of(job.tasks()[0])
    assert kinesis.reads == [("POLLING", ["s/a"])]


def test_the_first_batch_after_each_start_of_a_fan_out_job_polls_to_the_tip_and_the_others_subscribe(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path, **FAN_OUT)
    for start in range(2):
        kinesis.reads.clear()
        for number in range(3):
            kinesis.shards["s/a"].times.append(10 * start + number)
            run_next(job)
            (task,) = job.tasks()
            assert task.bounds.stop_at_tip is (number == 0)
        assert [publisher for publisher, _ in kinesis.reads] == ["POLLING", "EFO", "EFO"]
        job.restart()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_f9_a_fan_out_batch_is_planned_when_the_last_window_is_over(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **FAN_OUT)
    job.batch()
    kinesis.shards["s/a"].times.append(3)
    run_next(job)
    began = kinesis.clock.ms - 100
    kinesis.shards["s/a"].times.append(4)
    run_next(job)
    assert began + 5_000 <= job.last.planned_ms < began + 10_000


def test_shards_with_lost_claims_are_read_again_and_nothing_is_lost(kinesis, tmp_path, caplog):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [4, 5])
    job = query(kinesis, tmp_path, **REPLAY)
    job.batch()
    shutil.rmtree(tmp_path)
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.run()
    assert set(job.delivered()) == job.expected()
    assert "stored no record of what they read (claim), so their shards are read again" in caplog.text


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_query_whose_claims_are_lost_is_refused_and_repeats_no_row(kinesis, tmp_path, is_committed):
    kinesis.add("a", [1, 2, 3])
    job = query(kinesis, tmp_path)
    job.batch()
    shutil.rmtree(tmp_path)
    job.restart()
    with pytest.raises(StateError, match=r"metadataLocation .* has no claims .* of this query.*onMetadataLoss=REPLAY"):
        job.batch() if is_committed else job.run_again()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_claims_that_are_lost_under_a_running_query_end_it(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    job = query(kinesis, tmp_path)
    job.batch()
    shutil.rmtree(tmp_path)
    with pytest.raises(StateError, match=r"has no claims .* of this query"):
        job.batch()


def test_a_batch_makes_one_call_to_the_store_to_plan_and_two_for_each_task(kinesis, tmp_path):
    kinesis.add("a", [1])
    store = MemoryClaims()
    job = SimulatedQuery(kinesis, store, options(tmp_path, max_tasks=1))
    job.batch()
    kinesis.shards["s/a"].times.append(2)
    before = store.calls
    while not job.batch():
        before = store.calls
    assert store.calls - before == 1 + 2 + 1  # and one to purge, which Spark does not wait for


def test_a_token_that_has_expired_is_written_again(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    for number in range(3):
        job.batch()
        (marker,) = (tmp_path / job.last.query).glob("marker-*")
        shutil.rmtree(marker)
        kinesis.shards["s/a"].times.append(2 + number)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_queries_that_share_a_root_have_a_folder_each(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    jobs = [query(kinesis, tmp_path), query(kinesis, tmp_path)]
    for job in jobs:
        job.run()
        assert sorted(job.delivered()) == sorted(job.expected())
    folders = {path.name for path in tmp_path.iterdir()}
    assert folders == {"location-check", *(job.last.query for job in jobs)}


def test_a_planner_that_dies_before_its_first_offset_is_logged_leaves_no_claim(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    job = query(kinesis, tmp_path)
    planned = job.planner.next_offset(job.planner.initial_offset(), None)
    assert [path.name for path in (tmp_path / planned.query).iterdir()] == [f"marker-{planned.store_token}.versions"]
    job.restart()
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_claims_of_a_deleted_checkpoint_are_ignored_with_a_warning(kinesis, tmp_path, caplog):
    kinesis.add("a", [1, 2, 3])
    first = query(kinesis, tmp_path)
    first.run()
    assert "has claims of" not in caplog.text
    again = query(kinesis, tmp_path)
    again.run()
    assert sorted(again.delivered()) == sorted(again.expected())
    words = f"metadataLocation has claims (what tasks have read) of other queries ({first.last.query}), and this query has a new checkpoint"
    assert words in again.planner.figures()["warnings"][0]
    again.restart()
    again.batch()
    assert caplog.text.count(words) == 1


def test_that_other_queries_keep_claims_in_a_root_is_no_warning(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    for _ in range(2):
        job = query(kinesis, tmp_path, metadataRoot=str(tmp_path))
        job.run()
        assert "warnings" not in job.planner.figures()


def test_a_claim_that_names_other_shards_fails_the_task(kinesis, tmp_path):
    kinesis.add("a", [1])
    kinesis.add("b", [1])
    job = query(kinesis, tmp_path)
    job.batch()
    first, second = job.tasks()
    with pytest.raises(StateError, match="other shards"):
        job.rows_of(replace(first, group=second.group))


def test_an_unread_task_is_read_by_the_next_batch(kinesis, tmp_path, caplog):
    kinesis.add("a", [1])
    kinesis.add("b", [1])
    job = query(kinesis, tmp_path)
    job.read_task = lambda plan: plan.group == 0
    job.batch()
    job.read_task = lambda plan: True
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())
    assert "as take(1) in foreachBatch does?" in caplog.text


def test_a_batch_that_no_task_read_is_read_by_the_next_one_and_the_warning_names_what_skips_batches(
    kinesis, tmp_path, caplog
):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    job.read_task = lambda plan: False
    job.batch()
    job.read_task = lambda plan: True
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())
    assert "A file sink skips the batches that _spark_metadata in its folder has" in caplog.text


def test_old_claims_are_purged_and_those_of_other_queries_stay(kinesis, tmp_path):
    kinesis.add("a", [1])
    other = query(kinesis, tmp_path)
    other.batch()
    job = query(kinesis, tmp_path)
    for _ in range(40):
        kinesis.shards["s/a"].times.append(1)
        job.batch()
    kept = list((tmp_path / job.last.query).glob("0*"))
    assert len(kept) <= job.options.retain + 2
    assert list((tmp_path / other.last.query).glob("0*"))


def test_after_lost_claims_a_batch_that_the_sink_may_have_runs_empty_and_its_records_come_again(
    kinesis, tmp_path, caplog
):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **REPLAY)
    job.batch()
    # the sink has committed the batch and Spark has not: it runs again, and the sink ignores it
    taken = job.rows[1]
    kinesis.shards["s/a"].times += [3, 4]
    shutil.rmtree(tmp_path)
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.run_again()
    assert job.rows[1] == []
    assert "the claims (what tasks have read) of batch 1 are lost" in caplog.text
    job.rows[1] = taken
    job.run()
    assert set(job.delivered()) == job.expected()


def test_lost_claims_of_a_batch_that_the_sink_does_not_have_repeat_no_row(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **REPLAY)
    job.batch()
    shutil.rmtree(tmp_path)
    job.restart()
    job.run_again()
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_query_keeps_its_token_over_restarts(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    for _ in range(3):
        job.batch()
        job.restart()
        job.run_again()
    assert len(list((tmp_path / job.last.query).glob("marker-*"))) == 1
    assert job.rows[1] != []


def test_claims_that_cannot_be_purged_do_not_end_the_query(kinesis, tmp_path, caplog):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    job.batch()

    def refuse(query, before):
        raise OSError("read-only")

    job.store.purge = refuse
    job.planner.commit(job.last)
    assert "read-only" in caplog.text


def test_a_listing_that_fails_once_is_repeated_before_a_run_is_over(tmp_path):
    kinesis = SimulatedKinesis()
    kinesis.add("a", [1, 2, 3])
    job = SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path))
    job.run(quiet_plans=3)
    kinesis.add("c", [4, 5], parents=("a",))
    kinesis.close("a")  # no child is named, and the first listings are a moment old
    kinesis.unlisted = [("s/c",)] * 2
    job.restart()
    job.planner.prepare_available_now()
    real, calls = kinesis.list_shards, []

    def list_shards(stream):
        calls.append(stream)
        if len(calls) == 2:
            raise TransientError("ListShards", "LimitExceededException", "slow down")
        return real(stream)

    kinesis.list_shards = list_shards
    while job.batch() or job.planner.outage is not None:
        kinesis.clock.ms += 1_000
    assert [row for row in job.delivered() if row[0] == "s/c"] == [("s/c", "1"), ("s/c", "2")]


@pytest.mark.parametrize("properties", [{}, REPLAY])
def test_claims_that_a_copy_of_the_checkpoint_has_removed_are_not_taken_for_an_unread_batch(
    kinesis, tmp_path, properties
):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **properties)
    job.batch()
    copy = SimulatedQuery(kinesis, job.store, job.options, list(job.log))
    for time in range(3, 3 + job.options.retain + 2):
        kinesis.shards["s/a"].times.append(time)
        copy.batch()
    assert len(copy.rows) > job.options.retain
    if properties:
        assert job.batch()
        return
    with pytest.raises(StateError, match="another query runs with a copy of the checkpoint"):
        job.batch()
    assert sorted(copy.delivered()) == sorted(job.expected() - {("s/a", "1"), ("s/a", "2")})


def test_a_clock_that_is_set_back_does_not_hold_a_fan_out_query(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path, **FAN_OUT)
    for time in (2, 3, 4):
        kinesis.shards["s/a"].times.append(time)
        run_next(job)
    kinesis.shards["s/a"].times.append(5)
    job.batch()  # waits until the next read may subscribe
    kinesis.clock.set_by(-3_600_000)
    began, batches = kinesis.clock.ms, len(job.rows)
    while len(job.rows) == batches and kinesis.clock.ms < began + 60_000:
        job.batch()
    assert ("s/a", "5") in job.delivered()
