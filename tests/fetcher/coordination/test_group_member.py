"""W6, W7, W9a, W10: what a subtask says when, and what it makes of the answers."""

import pytest

from recordpublisher.fetcher.coordination.group_member import LEAP, Membership, Place
from recordpublisher.fetcher.coordination.heartbeat_messages import MOST_KEY_CHARACTERS, Answer
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT


class Subtask:
    """A membership whose coordinator is played by the test."""

    def __init__(self):
        self.member = Membership(Place("g", 0, 2), 1_000_000, 0)
        self.now = 0

    def states(self, watermark, status=ACTIVE, after=0):
        self.now += after
        self.member.state(SubtaskReport(0, status, watermark))
        return self.member.due(self.now)

    def hears(self, counter=0, value=None, **more):
        return self.member.hear(
            Answer(**{"coordinator": 7, "generation": 50, "counter": counter, "value": value, **more}), self.now
        )

    def joins(self, watermark=5):
        said = self.states(watermark)
        self.hears(said.counter, 3)
        return said


@pytest.fixture
def subtask():
    made = Subtask()
    made.joins()
    return made


def test_the_first_report_joins():
    said = Subtask().states(None)

    assert (said.generation, said.counter, said.status, said.watermark) == (0, 1_000_001, "ACTIVE", None)


def test_nothing_is_said_before_there_is_something_to_say():
    assert Subtask().member.due(10_000) is None


def test_a_higher_watermark_waits_for_the_heartbeat(subtask):  # W7
    assert subtask.states(6) is None
    said = subtask.states(7, after=1_000)

    assert (said.watermark, said.value, said.generation) == (7, 3, 50)


def test_the_heartbeat_is_said_idle_or_held(subtask):  # FLINK-29099
    assert subtask.states(None, IDLE).status == "IDLE"
    assert subtask.states(None, IDLE, after=1_000) is not None
    assert subtask.states(None, IDLE, after=1_000) is not None


@pytest.mark.parametrize(("watermark", "status"), [(None, IDLE), (None, ACTIVE), (4, ACTIVE)])
def test_what_lowers_or_frees_the_minimum_is_news(subtask, watermark, status):
    assert subtask.states(watermark, status) is not None


def test_news_wait_for_the_answer_that_is_under_way(subtask):
    said = subtask.states(None, IDLE)
    assert subtask.states(9) is None
    subtask.hears(said.counter, 3)

    assert subtask.states(9).watermark == 9


def test_leaving_does_not_wait(subtask):
    subtask.states(None, IDLE)

    assert subtask.states(None, LEFT).status == "LEFT"
    assert subtask.states(None, LEFT) is None


def test_a_watermark_that_others_wait_for_is_news_when_it_is_reached(subtask):  # W9a
    subtask.hears(0, 3, needed=10)
    assert subtask.states(9) is None
    assert subtask.states(11).watermark == 11


def test_a_held_subtask_says_what_it_waits_for_once(subtask):  # W9a
    subtask.member.wait_for(8)
    assert subtask.states(60, after=1).awaited == 8
    subtask.hears(1_000_002, 3)
    subtask.member.wait_for(8)
    assert subtask.states(60, after=1) is None
    assert subtask.hears(0, 8)
    subtask.member.wait_for(8)

    assert subtask.states(60, after=1_000).awaited is None


def test_the_value_never_goes_back(subtask):
    assert subtask.hears(0, 20)
    assert not subtask.hears(0, 10)
    assert not subtask.hears(0, 15, generation=60, coordinator=8)

    assert subtask.member.value == 20


def test_an_answer_of_an_older_generation_is_refused(subtask):
    assert not subtask.hears(0, 99, generation=49)

    assert subtask.member.value == 3


def test_another_coordinator_hears_all_shards_again(subtask):  # S2
    subtask.member.announce(["s/a"])
    assert subtask.states(5).finished == ("s/a",)
    subtask.hears(1_000_002, 3)
    assert subtask.states(5, after=1_000).finished == ()
    subtask.hears(1_000_003, 3, coordinator=8)

    assert subtask.states(5).finished == ("s/a",)


def test_shards_are_announced_until_a_statement_with_them_was_taken(subtask):  # S2
    subtask.member.announce(["s/a"])
    first = subtask.states(5)
    subtask.member.announce(["s/b"])
    assert subtask.states(5, after=1_000).finished == ("s/a", "s/b"), "the first may be lost"
    subtask.hears(first.counter, 3)

    assert subtask.states(5, after=1_000).finished == ("s/b",)


def test_many_shards_go_in_several_statements(subtask):
    keys = [f"orders/shardId-{number:012}" for number in range(3_000)]
    subtask.member.announce(keys)
    heard = []
    while (said := subtask.states(5)) is not None:
        assert sum(map(len, said.finished)) <= MOST_KEY_CHARACTERS
        heard += said.finished
        subtask.hears(said.counter, 3)

    assert heard == keys


def test_a_shard_is_asked_about_until_it_is_finished(subtask):
    assert not subtask.member.is_finished("s/a")
    said = subtask.states(5, after=1_000)
    assert said.asked == ("s/a",)
    assert subtask.hears(said.counter, 3, finished=("s/a",))

    assert subtask.member.is_finished("s/a")
    assert subtask.states(5, after=1_000).asked == ()


def test_a_newer_generation_is_joined_at_once(subtask):
    said = subtask.states(5, after=1_000)
    subtask.hears(said.counter, None, generation=60, refusal="GENERATION")

    assert subtask.states(5).generation == 60


def test_one_that_was_replaced_keeps_its_value_and_says_so(subtask):
    said = subtask.states(5, after=1_000)
    subtask.hears(said.counter, None, refusal="OLD", taken=said.counter + 5)

    assert subtask.member.is_replaced
    assert subtask.member.value == 3


def test_an_own_statement_that_was_overtaken_is_nothing(subtask):
    said = subtask.states(5, after=1_000)
    subtask.hears(said.counter, None, refusal="OLD", taken=said.counter)

    assert not subtask.member.is_replaced


def test_a_start_counts_on_from_a_predecessor_whose_clock_was_ahead():
    subtask = Subtask()
    subtask.states(5)
    subtask.hears(1_000_001, None, refusal="OLD", taken=9_000_000)

    assert subtask.states(5).counter == 9_000_001 + LEAP


def test_a_start_that_reached_the_coordinator_late_is_not_taken_for_replaced():
    subtask = Subtask()
    subtask.now = 60_000
    said = subtask.states(5)
    subtask.hears(said.counter, None, refusal="OLD", taken=4_000_000)

    assert not subtask.member.is_replaced
    assert subtask.states(5).counter == 4_000_001 + LEAP


def test_a_name_that_no_message_has_room_for_is_left_out(subtask):
    subtask.member.announce(["x" * MOST_KEY_CHARACTERS, "s/a"])
    subtask.member.is_finished("y" * MOST_KEY_CHARACTERS)
    said = subtask.states(5, after=1_000)

    assert (said.finished, said.asked) == (("s/a",), ())


def test_one_that_slept_since_its_start_does_not_take_its_place_back():
    subtask = Subtask()
    subtask.states(5)
    subtask.now = 60_000
    subtask.hears(1_000_001, None, refusal="OLD", taken=9_000_000)

    assert subtask.member.is_replaced


def test_it_is_answering_while_it_was_heard_of_lately(subtask):  # W10
    assert subtask.member.is_reachable(9_000)
    assert not subtask.member.is_reachable(10_001)
    assert not Subtask().member.is_reachable(0)
