"""S2: ends that a process announced count for those that started while it was alive, not for a later life of the job."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.watermark_group import FinishedShards

from fakes.group_member import CoordinatedJob


@pytest.fixture
def job():
    made = CoordinatedJob()
    made.start(0)
    made.start(1)
    made.beat(0, 1)
    made.members[1].shards.announce(["s/a"])
    made.beat(1)
    return made


def test_an_end_counts_for_a_subtask_that_runs(job):
    assert job.is_finished(0, "s/a")


def test_an_end_announced_before_a_start_counts_once_its_process_has_proved_to_be_alive(job):
    job.start(0)
    assert not job.is_finished(0, "s/a")
    job.beat(1)
    assert not job.is_finished(0, "s/a"), "that request may have been sent before the start"
    job.beat(1)

    assert job.is_finished(0, "s/a")


def test_an_end_of_a_process_that_vanished_does_not_count_for_a_restarted_job(job):
    job.start(0)
    for _ in range(5):
        assert not job.is_finished(0, "s/a")
    job.start(1)  # by its older checkpoint the shard is not finished
    job.beat(1)
    job.beat(1)

    assert not job.is_finished(0, "s/a")
    job.members[1].shards.announce(["s/a"])
    job.beat(1)
    assert job.is_finished(0, "s/a")


def test_a_restarted_coordinator_believes_those_that_report_to_it(job):
    job.start(0)
    job.coordinator = Coordinator(8)
    job.beat(1, 0, 1)

    assert job.is_finished(0, "s/a")


def test_what_a_subtask_announced_is_forgotten_for_that_subtask_alone():
    finished = FinishedShards()
    finished.add(["s/a", "s/b"], 1)
    finished.add(["s/b"], 2)
    finished.forget(1)

    assert set(finished) == {"s/b"}
    assert finished.subtask_of("s/b") == 2
