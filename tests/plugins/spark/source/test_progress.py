"""The figures of a query: of the last batch, also while no batch follows."""

from __future__ import annotations

import json

import pytest

from fakes.spark.queries import LOOKAHEAD, query
from fakes.spark.simulated_kinesis import ARRIVED, SimulatedKinesis


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    made = SimulatedKinesis()
    made.add("a", [1, 2, 3])
    made.add("b", [4])
    return made


def test_a_batch_that_is_planned_shows_the_volume_of_the_one_before(kinesis, tmp_path):
    job = query(kinesis, tmp_path, max_records=2)
    job.batch()
    job.batch()
    shown = job.planner.figures()
    names = ("batch", "streams", "shards", "lastBatchRecords", "records", "lastBatchBytes", "bytes")
    assert {name: shown[name] for name in names} == {
        "batch": 2,
        "streams": ["s"],
        "shards": 2,
        "lastBatchRecords": 2,
        "records": 2,
        "lastBatchBytes": 200,
        "bytes": 200,
    }
    assert (shown["recordsPerSecond"], shown["bytesPerSecond"]) == (10.0, 1000.0)  # two tasks of 0.1 s


def test_the_last_batch_before_a_pause_is_shown_with_its_own_rate(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(2)
    shown = job.planner.figures()
    assert (shown["batch"], shown["lastBatchRecords"], shown["records"], shown["atTip"]) == (1, 4, 4, 2)
    kinesis.clock.ms += 40_000
    job.batch()
    assert job.planner.figures()["recordsPerSecond"] == shown["recordsPerSecond"] == 20.0


def test_records_that_were_left_out_are_counted_over_all_batches(kinesis, tmp_path):
    kinesis.skipped = {"s/a": 5, "s/b": 2}
    job = query(kinesis, tmp_path)
    job.run(2)
    kinesis.shards["s/a"].times.append(60)
    kinesis.skipped = {"s/a": 1}
    job.run(2)
    assert job.planner.figures()["skippedRecords"] == 8


def test_lag_is_that_of_the_worst_the_best_and_the_average_shard(kinesis, tmp_path):
    kinesis.empty_seconds["s/a"] = 20  # far behind, with nothing but empty responses
    job = query(kinesis, tmp_path)
    job.run(2)
    shown = job.planner.figures()
    lags = [shown[name] for name in ("millisBehindLatest", "minMillisBehindLatest", "avgMillisBehindLatest")]
    since_planned_ms = 200  # two tasks, one after the other
    assert lags == [1_000_000 + since_planned_ms, 0, (1_000_000 + since_planned_ms) / 2]


def test_lag_is_the_age_of_the_oldest_row_that_is_not_in_the_sink(kinesis, tmp_path):
    """Against a stopwatch: the time since that row was put."""
    job = query(kinesis, tmp_path, max_records=2)
    kinesis.shards["s/a"].times += [5, 6, 7]
    kinesis.behind_latest = True
    job.batch()
    kinesis.clock.ms += 30_000  # a slow sink
    job.batch()
    oldest_ms = ARRIVED + 1  # the record after the first one of the shard
    lag = job.planner.figures()["millisBehindLatest"]
    assert 0 <= lag - (kinesis.clock.ms - 200 - oldest_ms) <= 1


def test_shards_that_alignment_holds_and_the_watermark_are_shown(kinesis, tmp_path):
    kinesis.add("ahead", [100_000])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    job.run(5)
    shown = job.planner.figures()
    assert (shown["held"], shown["globalWatermark"]) == (1, 3)


def test_figures_are_json(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.run(2)
    assert json.loads(json.dumps(job.planner.figures())) == job.planner.figures()
