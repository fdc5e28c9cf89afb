"""W6, W9a: what the coordinator takes, refuses and tells without being asked."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import TOLD_AT_ONCE, Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import Statement


class Group:
    """A coordinator and what its subtasks said last."""

    def __init__(self, parallelism=2):
        self.coordinator = Coordinator(7)
        self.parallelism = parallelism
        self.counters = {}

    def says(self, subtask, watermark=None, *, counter=None, generation=None, at=0, status="ACTIVE", **more):
        self.counters[subtask] = self.counters.get(subtask, 100) + 1 if counter is None else counter
        known = self.coordinator.generation if subtask in self.counters else 0
        said = {
            "group": "g",
            "subtask": subtask,
            "parallelism": self.parallelism,
            "generation": known if generation is None else generation,
            "counter": self.counters[subtask],
            "status": status,
            "watermark": watermark,
            **more,
        }
        return self.coordinator.take(Statement(**said), at)

    def starts(self, subtask, watermark=None, **more):
        return self.says(subtask, watermark, generation=0, **more)


@pytest.fixture
def group():
    made = Group()
    made.starts(0, 5)
    made.starts(1, 9)
    return made


def test_an_answer_names_value_and_holder(group):
    answer = group.says(1, 12)

    assert (answer.value, answer.holder, answer.refusal, answer.counter) == (5, 0, "", 102)


def test_an_older_statement_is_refused_and_changes_nothing(group):
    group.says(0, 20, counter=500)
    answer = group.says(0, 7, counter=499)

    assert (answer.refusal, answer.taken) == ("OLD", 500)
    assert group.says(1, 12).value == 12


def test_one_of_an_older_generation_is_refused_and_learns_the_newer(group):
    newest = group.coordinator.generation
    answer = group.says(0, 7, generation=newest - 1)

    assert (answer.refusal, answer.generation) == ("GENERATION", newest)


def test_a_restarted_coordinator_takes_up_generation_and_value(group):
    generation = group.coordinator.generation
    group.coordinator = Coordinator(8)
    answer = group.says(0, 8, generation=generation, value=5)

    assert (answer.value, answer.generation, answer.coordinator) == (5, generation, 8)
    assert group.says(1, 9, generation=generation, value=4).value == 8


def test_a_job_that_starts_again_when_all_have_left_begins_at_what_it_restored(group):
    group.says(0, status="LEFT", finished=("s/a",))
    group.says(1, status="LEFT")
    before = group.coordinator.generation
    answer = group.starts(1, None, start=2, asked=("s/a",))

    assert answer.generation > before
    assert (answer.value, answer.finished) == (2, ())


def test_a_job_that_was_killed_begins_anew_without_waiting_for_the_timeout(group):
    group.coordinator.lost(0, group.counters[0])
    group.coordinator.lost(1, group.counters[1])

    assert group.starts(0, None, start=2).value == 2


def test_a_subtask_that_starts_again_beside_others_joins_their_generation(group):
    generation = group.coordinator.generation
    group.coordinator.lost(0, group.counters[0])
    answer = group.starts(0, 1, start=1, counter=10_000)

    assert (answer.generation, answer.value) == (generation, 5)


def test_an_older_connection_that_ends_does_not_mean_its_successor(group):
    old = group.counters[0]
    group.starts(0, 5, counter=10_000)
    group.coordinator.lost(0, old)
    group.coordinator.lost(1, group.counters[1])

    assert not group.coordinator.is_deserted


def test_a_rescaled_job_is_a_new_generation_and_the_old_one_is_refused(group):
    group.parallelism = 3
    assert group.starts(2, 1, counter=20_000).value is None
    group.parallelism = 2
    assert group.says(0, 50).refusal == "PARALLELISM"
    group.parallelism = 3
    group.starts(0, 2, counter=20_001)
    assert group.starts(1, 3, counter=20_002).value == 1


def test_what_is_late_cannot_open_a_generation(group):
    for subtask in (0, 1):
        group.says(subtask, status="LEFT")
    generation = group.coordinator.generation
    answer = group.starts(0, 1, counter=101)

    assert (answer.refusal, answer.generation) == ("OLD", generation)


def test_a_held_subtask_is_told_once_when_its_value_is_reached(group):
    group.says(1, 60, awaited=10)
    group.coordinator.due()
    group.says(0, 9)
    assert 1 not in dict(group.coordinator.due())
    group.says(0, 10)
    told = dict(group.coordinator.due())
    group.says(0, 11)

    assert told[1].value == 10
    assert 1 not in dict(group.coordinator.due())


@pytest.mark.parametrize("status", ["IDLE", "LEFT"])
def test_who_is_idle_or_gone_waits_for_nothing(group, status):
    group.says(1, None, awaited=10, status=status)

    assert group.says(0, 6).needed is None


def test_who_holds_others_hears_up_to_where_once(group):
    group.says(1, 60, awaited=10)
    told = group.coordinator.due()
    assert [(subtask, answer.needed) for subtask, answer in told] == [(0, 10)]
    group.says(1, 60, awaited=10)

    assert group.coordinator.due() == []


def test_the_next_holder_hears_it_when_its_turn_comes(group):
    group.says(1, 6, counter=1_000)
    group.parallelism = 3
    group.starts(2, 60, counter=3_000)
    group.starts(0, 5, counter=3_000)
    group.starts(1, 6, counter=3_000)
    group.says(2, 60, awaited=10)

    assert {subtask for subtask, _ in group.coordinator.due()} == {0, 1}
    assert group.says(0, 12).needed == 10


def test_one_report_never_makes_more_messages_than_it_must():
    group = Group(parallelism=1_000)
    for subtask in range(1_000):
        group.starts(subtask, 5)
    for subtask in range(500, 1_000):
        group.says(subtask, 100 + subtask, awaited=50 + subtask)
    assert len(group.coordinator.due()) == TOLD_AT_ONCE
    group.says(0, 6)

    assert len(group.coordinator.due()) <= 1


def test_finished_shards_are_answered_to_who_asks(group):  # S2
    group.says(0, 5, finished=("s/a", "s/b"))

    assert group.says(1, 9, asked=("s/b", "s/c")).finished == ("s/b",)


def test_a_silent_subtask_is_named_and_the_waiting_are_told(group):
    group.says(1, 60, awaited=10, at=100)
    for now in range(0, 30_001, 5_000):
        group.says(1, 60, awaited=10, at=now)
        group.coordinator.due()
    told = group.says(1, 60, at=30_002)

    assert (told.value, told.left_out) == (60, (0,))
    assert group.coordinator.look(30_003) == [0], "also when a statement came before the look"
    assert group.coordinator.look(30_004) == []


def test_answers_name_the_furthest_place_of_those_that_read(group):  # W12
    group.says(0, 5, furthest=70)

    assert group.says(1, 9, furthest=60).furthest == 70
    assert group.says(0, status="LEFT").furthest == 60
