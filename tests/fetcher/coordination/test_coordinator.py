"""W6, W9a: what the coordinator accepts, rejects and notifies of."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import MAX_NOTIFIED, Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest


class Group:
    """A coordinator and the last request numbers of its subtasks."""

    def __init__(self, parallelism=2):
        self.coordinator = Coordinator(7)
        self.parallelism = parallelism
        self.numbers = {}
        self.seen = {}
        """By subtask: the last start of its last response."""

    def sends(self, subtask, watermark=None, *, number=None, generation=None, at=0, status="ACTIVE", **more):
        self.numbers[subtask] = self.numbers.get(subtask, 100) + 1 if number is None else number
        known = self.coordinator.generation if subtask in self.numbers else 0
        request = {
            "group": "g",
            "subtask": subtask,
            "parallelism": self.parallelism,
            "generation": known if generation is None else generation,
            "request_number": self.numbers[subtask],
            "status": status,
            "watermark": watermark,
            **self.seen.get(subtask, {}),
            **more,
        }
        response = self.coordinator.handle_heartbeat(HeartbeatRequest(**request), at)
        self.seen[subtask] = {"coordinator_id": response.coordinator_id, "last_start": response.last_start}
        return response

    def starts(self, subtask, watermark=None, **more):
        self.seen.pop(subtask, None)
        return self.sends(subtask, watermark, generation=0, **more)


@pytest.fixture
def group():
    made = Group()
    made.starts(0, 5)
    made.starts(1, 9)
    return made


def test_a_response_has_the_global_watermark_and_the_lowest_subtask(group):
    response = group.sends(1, 12)

    assert (response.global_watermark, response.lowest_subtask, response.rejection, response.request_number) == (
        5,
        0,
        None,
        102,
    )


def test_a_stale_request_is_rejected_and_changes_nothing(group):
    group.sends(0, 20, number=500)
    response = group.sends(0, 7, number=499)

    assert (response.rejection, response.last_accepted) == ("STALE_REQUEST", 500)
    assert group.sends(1, 12).global_watermark == 12


def test_the_rejection_of_a_stale_request_says_when_the_other_process_joined_and_whether_it_is_gone(group):
    group.starts(0, 5, number=500, at=1_000)
    group.sends(0, 5, number=501, at=9_000)
    there = group.starts(0, 5, number=200, at=9_500)
    group.sends(0, number=502, status="LEFT", at=9_600)
    left = group.starts(0, 5, number=201, at=9_700)

    assert (there.rejection, there.joined_ms_ago, there.is_gone) == ("STALE_REQUEST", 8_500, False)
    assert (left.joined_ms_ago, left.is_gone) == (8_700, True)


def test_a_restarted_coordinator_does_not_know_when_a_running_process_joined():
    group = Group()
    group.sends(0, 5, number=500, generation=77)

    assert group.starts(0, 5, number=200, at=9_000).joined_ms_ago is None


def test_a_request_of_an_older_generation_is_rejected_with_the_newer_one(group):
    newest = group.coordinator.generation
    response = group.sends(0, 7, generation=newest - 1)

    assert (response.rejection, response.generation) == ("STALE_GENERATION", newest)


def test_a_restarted_coordinator_takes_over_generation_and_global_watermark(group):
    generation = group.coordinator.generation
    group.coordinator = Coordinator(8)
    response = group.sends(0, 8, generation=generation, global_watermark=5)

    assert (response.global_watermark, response.generation, response.coordinator_id) == (5, generation, 8)
    assert group.sends(1, 9, generation=generation, global_watermark=4).global_watermark == 8


def test_a_job_that_restarts_after_all_left_begins_at_its_restored_watermark(group):
    group.sends(0, status="LEFT", finished_shards=("s/a",))
    group.sends(1, status="LEFT")
    before = group.coordinator.generation
    response = group.starts(1, None, restored_watermark=2, queried_shards=("s/a",))

    assert response.generation > before
    assert (response.global_watermark, response.finished_shards) == (2, ())


def test_a_killed_job_restarts_without_waiting_for_the_timeout(group):
    group.coordinator.disconnect(0, group.numbers[0])
    group.coordinator.disconnect(1, group.numbers[1])

    assert group.starts(0, None, restored_watermark=2).global_watermark == 2


def test_a_subtask_that_restarts_beside_others_joins_their_generation(group):
    generation = group.coordinator.generation
    group.coordinator.disconnect(0, group.numbers[0])
    group.starts(0, 1, restored_watermark=1, number=10_000)
    group.sends(1, 9)
    group.sends(1, 9)  # with the response to the request before it: this process is alive after the start of subtask 0
    response = group.sends(0, 1)

    assert (response.generation, response.global_watermark) == (generation, 5)


def test_the_loss_of_an_older_connection_does_not_affect_the_newer_one(group):
    old = group.numbers[0]
    group.starts(0, 5, number=10_000)
    group.coordinator.disconnect(0, old)
    group.coordinator.disconnect(1, group.numbers[1])

    assert not group.coordinator.is_empty


def test_a_rescaled_job_is_a_new_generation_and_the_old_one_is_rejected(group):
    group.parallelism = 3
    assert group.starts(2, 1, number=20_000).global_watermark is None
    group.parallelism = 2
    assert group.sends(0, 50).rejection == "PARALLELISM_MISMATCH"
    group.parallelism = 3
    group.starts(0, 2, number=20_001)
    assert group.starts(1, 3, number=20_002).global_watermark == 1


def test_a_delayed_request_cannot_open_a_generation(group):
    for subtask in (0, 1):
        group.sends(subtask, status="LEFT")
    generation = group.coordinator.generation
    response = group.starts(0, 1, number=101)

    assert (response.rejection, response.generation) == ("STALE_REQUEST", generation)


def test_a_held_subtask_is_notified_once_when_its_watermark_is_reached(group):
    group.sends(1, 60, awaited_watermark=10)
    group.coordinator.take_notifications()
    group.sends(0, 9)
    assert 1 not in dict(group.coordinator.take_notifications())
    group.sends(0, 10)
    notified = dict(group.coordinator.take_notifications())
    group.sends(0, 11)

    assert notified[1].global_watermark == 10
    assert 1 not in dict(group.coordinator.take_notifications())


@pytest.mark.parametrize("status", ["IDLE", "LEFT"])
def test_a_subtask_that_is_idle_or_left_awaits_nothing(group, status):
    group.sends(1, None, awaited_watermark=10, status=status)

    assert group.sends(0, 6).lowest_awaited is None


def test_the_lowest_subtask_is_notified_once_of_the_awaited_watermark(group):
    group.sends(1, 60, awaited_watermark=10)
    notified = group.coordinator.take_notifications()
    assert [(subtask, response.lowest_awaited) for subtask, response in notified] == [(0, 10)]
    group.sends(1, 60, awaited_watermark=10)

    assert group.coordinator.take_notifications() == []


def test_the_next_lowest_subtask_is_notified_too(group):
    group.sends(1, 6, number=1_000)
    group.parallelism = 3
    group.starts(2, 60, number=3_000)
    group.starts(0, 5, number=3_000)
    group.starts(1, 6, number=3_000)
    group.sends(2, 60, awaited_watermark=10)

    assert {subtask for subtask, _ in group.coordinator.take_notifications()} == {0, 1}
    assert group.sends(0, 12).lowest_awaited == 10


def test_one_report_causes_a_limited_number_of_notifications():
    group = Group(parallelism=1_000)
    for subtask in range(1_000):
        group.starts(subtask, 5)
    for subtask in range(500, 1_000):
        group.sends(subtask, 100 + subtask, awaited_watermark=50 + subtask)
    assert len(group.coordinator.take_notifications()) == MAX_NOTIFIED
    group.sends(0, 6)

    assert len(group.coordinator.take_notifications()) <= 1


def test_a_query_returns_the_finished_shards(group):  # S2
    group.sends(0, 5, finished_shards=("s/a", "s/b"))
    group.sends(0, 5)  # with the response to the request before it: this process is alive after the start of subtask 1

    assert group.sends(1, 9, queried_shards=("s/b", "s/c")).finished_shards == ("s/b",)


def test_a_silent_subtask_times_out_and_the_others_continue(group):
    group.sends(1, 60, awaited_watermark=10, at=100)
    for now in range(0, 30_001, 5_000):
        group.sends(1, 60, awaited_watermark=10, at=now)
        group.coordinator.take_notifications()
    response = group.sends(1, 60, at=30_002)

    assert (response.global_watermark, response.timed_out_subtasks) == (60, (0,))
    assert group.coordinator.expire(30_003) == [0], "also when a request was handled before the check"
    assert group.coordinator.expire(30_004) == []


def test_responses_have_the_highest_watermark_of_any_shard(group):  # W12
    group.sends(0, 5, max_shard_watermark=70)

    assert group.sends(1, 9, max_shard_watermark=60).max_shard_watermark == 70
    assert group.sends(0, status="LEFT").max_shard_watermark == 60
