"""W6: the rules of one generation, on a clock that the test moves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination import watermark_group
from recordpublisher.fetcher.coordination.watermark_group import Patience, WatermarkGroup
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT
PATIENCE = Patience(timeout_ms=1_000, startup_ms=3_000)


def group(parallelism=2, **watermarks):
    made = WatermarkGroup(parallelism, PATIENCE, 0)
    for subtask, watermark in watermarks.items():
        made.state(int(subtask[1:]), ACTIVE, watermark, 0)
    return made


def keep_alive(made, subtask, watermark, until, start=0):
    for now in range(start, until + 1, 100):
        made.look(now)
        made.state(subtask, ACTIVE, watermark, now)


def test_an_expected_subtask_holds_the_value_until_the_start_up_timeout():
    made = group(2)
    keep_alive(made, 0, 5, 2_900)
    assert (made.value, made.left_out, made.holder()) == (None, (), 1)
    keep_alive(made, 0, 5, 3_000, 3_000)

    assert (made.value, made.left_out, made.holder()) == (5, (1,), 0)


def test_a_silent_subtask_is_left_out_after_the_timeout_and_named():
    made = group(2, s0=5, s1=3)
    keep_alive(made, 0, 9, 900)
    assert made.value == 3
    assert made.look(999) == []
    assert made.look(1_000) == [1]

    assert (made.value, made.left_out) == (9, (1,))


def test_one_who_speaks_again_counts_again_and_moves_nothing_back():
    made = group(2, s0=5, s1=3)
    keep_alive(made, 0, 9, 1_000)
    made.state(1, ACTIVE, 4, 1_001)
    made.state(0, ACTIVE, 50, 1_001)

    assert (made.value, made.left_out, made.holder()) == (9, (), 1)


def test_a_subtask_that_repeats_itself_is_there():
    made = group(2, s0=5, s1=3)
    for now in range(0, 5_000, 100):
        made.still_there(0, now)
        made.still_there(1, now)
        assert made.look(now) == []


def test_the_groups_own_suspension_gives_everybody_a_fresh_timeout():
    made = group(2, s0=5, s1=3)
    made.look(400)
    assert made.look(100_000) == [], "nobody looked: we slept"
    for now in (100_400, 100_800, 100_999):
        made.state(0, ACTIVE, 7, now)
        assert made.look(now) == []

    assert made.look(101_000) == [1]


def test_a_suspension_gives_expected_subtasks_a_fresh_start_up_timeout():
    made = group(2)
    keep_alive(made, 0, 5, 1_000)
    keep_alive(made, 0, 5, 52_900, 50_000)
    assert made.value is None
    keep_alive(made, 0, 5, 53_000, 53_000)

    assert made.value == 5


def test_with_nobody_active_the_last_value_stands():
    made = group(2, s0=5, s1=7)
    made.state(0, IDLE, None, 0)
    made.state(1, LEFT, None, 0)

    assert made.value == 7


def test_a_leaver_is_not_missed():
    made = group(2, s0=5, s1=7)
    made.state(0, LEFT, None, 0)
    keep_alive(made, 1, 8, 5_000)

    assert (made.value, made.left_out) == (8, ())


def test_a_generation_is_deserted_when_all_left_fell_silent_or_lost_their_connection():
    made = group(3, s0=1, s1=1, s2=1)
    made.state(0, LEFT, None, 0)
    made.lost(1)
    assert not made.is_deserted()
    assert made.is_deserted(but_for=2)
    made.look(500)
    made.look(1_000)

    assert made.is_deserted()


def test_one_who_joins_again_holds_until_it_speaks():
    made = group(2, s0=5, s1=7)
    made.state(1, LEFT, None, 0)
    made.join(1, 0)
    made.state(0, ACTIVE, 50, 0)

    assert (made.value, made.holder()) == (5, 1)


def test_there_is_only_so_much_room_for_finished_shards(monkeypatch):
    monkeypatch.setattr(watermark_group, "MOST_FINISHED_CHARACTERS", 7)
    made = group(1)
    made.finish(["s/a", "s/b", "s/c", "s/a"])

    assert made.finished == {"s/a", "s/b"}


def test_a_value_that_is_brought_only_raises():
    made = group(1, s0=5)
    made.bring(3)
    assert made.value == 5
    made.bring(30)

    assert made.value == 30


@pytest.mark.parametrize("count", [1, 2])
def test_the_lowest_below_a_bound_are_found(count):
    made = group(4, s0=5, s1=3, s2=30, s3=4)

    assert made.below(10, count) == [1, 3][:count]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([*SubtaskStatus, ACTIVE, ACTIVE, "lost", "nothing"]),
        st.none() | st.integers(-50, 50),
        st.sampled_from([0, 10, 300, 450, 700, 5_000]),
    ),
    max_size=60,
)


def value_of(made):
    return -math.inf if made.value is None else made.value


def expected(before, said):
    """The lowest of those that count, and never less than before; who is not heard of yet, or has no watermark, is lowest."""
    counting = [each for each in said.values() if isinstance(each, tuple) or each == "unheard"]
    levels = [-math.inf if each in ("unheard", (None,)) else each[0] for each in counting]
    return max(before, min(levels, default=-math.inf))


@given(EVENTS, st.none() | st.integers(-50, 50))
def test_it_never_falls_and_rises_only_to_the_lowest_of_those_that_count(events, start):
    """Against a model that knows everybody by heart and takes a plain minimum."""
    made = WatermarkGroup(4, PATIENCE, 0)
    made.start_at(start)
    now, looked = 0, 0
    heard, said = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), "unheard")
    for subtask, status, watermark, passed in events:
        now += passed
        before = value_of(made)
        if now - looked > PATIENCE.timeout_ms / 2:
            heard = dict.fromkeys(heard, now)
        looked = now
        for each, moment in heard.items():
            limit = PATIENCE.startup_ms if said[each] == "unheard" else PATIENCE.timeout_ms
            if said[each] not in ("left", "out") and now - moment >= limit:
                said[each] = "out"
        made.look(now)
        before = expected(before, said)  # who is left out now may have held the value
        assert value_of(made) == before
        if status == "lost":
            made.lost(subtask)
        elif status != "nothing":
            heard[subtask] = now
            said[subtask] = {IDLE: "idle", LEFT: "left"}.get(status, (watermark,))
            made.state(subtask, status, watermark if status is ACTIVE else None, now)
        assert value_of(made) == expected(before, said)
        assert made.left_out == tuple(each for each, word in said.items() if word == "out")
        assert made.unheard == [each for each, word in said.items() if word == "unheard"]
