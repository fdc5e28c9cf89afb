"""W6: a process that starts joins the running job, or with others its next life; a machine that vanished decides neither."""

import pytest

from fakes.group_member import CoordinatedJob


@pytest.fixture
def job():
    made = CoordinatedJob()
    made.start(0, restored=10, watermark=50)
    made.start(1, restored=10, watermark=60)
    made.beat(0, 1)
    return made


def test_a_job_that_starts_knows_its_restored_watermark_at_once():
    job = CoordinatedJob()
    job.start(0, restored=10)
    job.start(1, restored=10, watermark=None)

    assert [job.known_watermark(0), job.known_watermark(1)] == [10, 10]


def test_a_subtask_that_restarts_beside_others_joins_them_once_one_has_proved_to_be_alive(job):
    generation = job.coordinator.generation
    job.start(0, restored=20, watermark=20)
    job.beat(1)
    assert job.known_watermark(0) is None, "the request of subtask 1 may have been sent before the start"
    job.beat(1, 0)

    assert (job.coordinator.generation, job.known_watermark(0)) == (generation, 50)


def test_a_subtask_that_starts_above_the_global_watermark_joins_at_once(job):
    job.start(0, restored=50, watermark=50)

    assert job.known_watermark(0) == 50


def test_a_job_restarts_at_its_restored_watermark_although_a_machine_of_its_earlier_life_vanished(job):
    job.start(0, restored=20, watermark=20)  # subtask 1 counts as connected and sends nothing more
    for _ in range(5):
        job.beat(0)
    assert job.known_watermark(0) is None
    job.start(1, restored=20, watermark=30)
    job.beat(0)  # learns that there is a newer generation
    job.beat(0)

    assert [job.known_watermark(0), job.known_watermark(1)] == [20, 20]


def test_the_restarted_job_waits_for_a_vanished_machine_at_most_for_the_timeout(job):
    generation = job.coordinator.generation
    job.start(0, restored=20, watermark=20)
    for _ in range(7):
        job.beat(0, after=5_000)

    assert job.known_watermark(0) == 20
    assert job.coordinator.generation > generation


def test_subtasks_that_restart_together_do_not_confirm_each_other():
    job = CoordinatedJob(parallelism=3)
    for subtask in (0, 1, 2):
        job.start(subtask, restored=10, watermark=50)
    job.beat(0, 1, 2)
    for subtask in (0, 1):  # subtask 2 counts as connected and sends nothing more
        job.start(subtask, restored=20, watermark=20)
    for _ in range(5):
        job.beat(0, 1)

    assert [job.known_watermark(0), job.known_watermark(1)] == [None, None]


def test_a_subtask_of_a_restarted_job_that_its_earlier_life_never_had_is_told_no_watermark_of_that_life():
    job = CoordinatedJob()
    job.start(0, restored=10, watermark=50)
    job.start(1, restored=5, watermark=None)
    assert job.known_watermark(1) is None
    job.start(0, restored=5)

    assert job.known_watermark(0) == 5
