"""kill -9 of the driver while it writes, and of a task: every row at least once, and what came twice can be dropped."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from spark_jobs import dropped_repeats
from spark_kills import Job, kill_at, producing, rounds, seeded

pytestmark = [pytest.mark.spark, pytest.mark.kills, pytest.mark.timeout(3600)]


@pytest.fixture
def job(kinesis, tmp_path):
    """A copy of one stream into another; a task may fail three times."""
    source, target = kinesis("killed-in", 2), kinesis("killed-out", 2)
    put = {"stream": target.name, "idField": "rowId", **target.served.endpoint.properties()}
    options = source.options(tmp_path, maxRecordsPerBatch=2000)
    return Job(options, tmp_path, "kinesis", "local[2,4]", target=put), source, target


def test_every_row_at_least_once_wherever_the_driver_is_killed(job):
    job, source, target = job
    chance = seeded()
    kills: Counter[str] = Counter()
    with producing(source):
        for number in range(max(2, rounds() // 2)):
            place = ("written", "anywhere")[number % 2]
            kill_at(job, place, chance)
            kills[place] += 1
    check(job, source, target, kills)


def test_a_task_that_is_killed_writes_its_rows_again(job):
    job, source, target = job
    with producing(source), job.start() as running:
        running.wait_for_lines(2)
        os.kill(running.stand_at("written")[0], signal.SIGKILL)
        running.disarm()
        running.wait_for_lines(len(running.lines) + 2)
    check(job, source, target, "a task")


def check(job, source, target, kills):
    """At least once; a job that was killed behind its rows and before the commit has put them twice."""
    job.finish()
    records = target.records()
    rows = dropped_repeats(records)
    print(f"kills: {kills}, rows: {source.count}, repeats: {len(records) - len(rows)}")
    assert sorted(row["n"] for row in rows) == list(range(source.count))
    assert len(records) > len(rows)
