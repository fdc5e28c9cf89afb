"""S2: ends that a process announced count for those that started while it was alive, not for a later life of the job."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.watermark_group import FinishedShards
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus


class Job:
    """Two subtasks over one coordinator; each message arrives at once. A process that is not called sends nothing."""

    def __init__(self):
        self.coordinator = Coordinator(7)
        self.now = 0.0
        self.starts = 0
        self.members = {}

    def start(self, subtask):
        self.starts += 1
        self.members[subtask] = GroupMember(MemberConfig("g", subtask, 2), self.starts * 1_000_000, self.now)
        self.beat(subtask)

    def beat(self, *subtasks):
        self.now += 1_000
        for subtask in subtasks:
            member = self.members[subtask]
            member.report(SubtaskReport(subtask, SubtaskStatus.ACTIVE, 5))
            response = self.coordinator.handle_heartbeat(member.prepare_request(self.now), self.now)
            member.handle_response(response, self.now)

    def is_finished(self, subtask, shard):
        self.members[subtask].shards.query(shard)
        self.beat(subtask)
        return self.members[subtask].shards.is_finished(shard)


@pytest.fixture
def job():
    made = Job()
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
