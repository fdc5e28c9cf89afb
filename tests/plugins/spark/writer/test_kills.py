"""kill -9 of a task and of the driver while they write: every row at least once, and repeats can be dropped."""

from __future__ import annotations

import os
import signal

import pytest

from spark_jobs.kills import Job, producing
from spark_jobs.queries import dropped_repeats

pytestmark = [pytest.mark.spark, pytest.mark.kills, pytest.mark.timeout(1800)]


def test_every_row_at_least_once_wherever_tasks_and_driver_are_killed(kinesis, tmp_path):
    source, target = kinesis("killed-in", 3), kinesis("killed-out", 2)
    put = {"stream": target.name, "idField": "rowId", **target.served.endpoint.properties()}
    options = source.options(
        tmp_path, maxRecordsPerBatch=2000
    )  # one task writes two of the three shards: a replay may order them differently
    job = Job(options, tmp_path, "kinesis", "local[2,4]", target=put)  # a task may fail three times
    with producing(source), job.start() as running:
        running.wait_for_lines(2)
        os.kill(running.pause_at("written")[0], signal.SIGKILL)  # the worker of a task: acknowledged, not reported
        running.disarm()
        running.wait_for_lines(len(running.lines) + 2)
        of_the_task = repeats(target)
        running.pause_at("written")
        running.kill()  # the driver and all tasks
        running.disarm()
    job.finish()
    rows = dropped_repeats(target.records())
    print(f"rows: {source.count}, repeats: {of_the_task} by the task, {repeats(target)} in all")
    assert sorted(row["n"] for row in rows) == list(range(source.count))
    assert 0 < of_the_task < repeats(target)


def repeats(target) -> int:
    records = target.records()
    return len(records) - len(dropped_repeats(records))
