"""The driver's line about a batch."""

from __future__ import annotations

from dataclasses import replace

from recordpublisher.plugins.spark.writer.data_writers import abort_line, commit_line
from recordpublisher.plugins.spark.writer.write_task import TaskFigures

TASKS = [TaskFigures(0, 0, 10, 1000, 2, 1, 1, 0, 3, 0.5), TaskFigures(1, 1, 5, 500, 1, 0, 0, 1, 0, 2.04)]


def test_a_batch_is_one_line_with_its_sums_and_its_slowest_task():
    assert commit_line("batch 7", TASKS) == (
        "batch 7: 15 records and 1500 bytes put by 2 tasks, as 3 Kinesis records; 1 sent again, 1 throttled, 1 given up, "
        "3 waits because of back-pressure; the slowest task (1) took 2.0 s"
    )


def test_a_batch_without_tasks_and_one_that_failed():
    assert commit_line("batch 0", []).endswith("no task wrote")
    assert abort_line("batch 7", TASKS[:1]).startswith(
        "batch 7 failed: 10 records of 1 finished tasks are in the stream"
    )


def test_dead_letters_are_counted_apart_from_skipped_rows():
    skipped = TaskFigures(0, 0, 8, 800, 8, 0, 0, given_up=2, waits=0, seconds=1.0)
    assert "2 given up, " in commit_line("batch 7", [skipped])
    assert "4 given up (2 dead letters), " in commit_line("batch 7", [skipped, replace(skipped, dead_letters=2)])
