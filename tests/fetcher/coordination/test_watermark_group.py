"""W6: the rules of one generation; the test passes the time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination import watermark_group
from recordpublisher.fetcher.coordination.subtask_liveness import GroupTimeouts
from recordpublisher.fetcher.coordination.watermark_group import WatermarkGroup
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT
TIMEOUTS = GroupTimeouts(heartbeat_ms=1_000, startup_ms=3_000)


def group(parallelism=2, **watermarks):
    made = WatermarkGroup(parallelism, TIMEOUTS, 0)
    for subtask, watermark in watermarks.items():
        made.report(int(subtask[1:]), ACTIVE, watermark, 0)
    return made


def keep_alive(made, subtask, watermark, until, start=0):
    for now in range(start, until + 1, 100):
        made.expire(now)
        made.report(subtask, ACTIVE, watermark, now)


def test_an_expected_subtask_keeps_the_global_watermark_from_rising_until_the_start_up_timeout():
    made = group(2)
    keep_alive(made, 0, 5, 2_900)
    assert (made.global_watermark, made.liveness.timed_out, made.lowest_subtask) == (None, (), 1)
    keep_alive(made, 0, 5, 3_000, 3_000)

    assert (made.global_watermark, made.liveness.timed_out, made.lowest_subtask) == (5, (1,), 0)


def test_a_silent_subtask_does_not_count_after_the_timeout():
    made = group(2, s0=5, s1=3)
    keep_alive(made, 0, 9, 900)
    assert made.global_watermark == 3
    assert made.expire(999) == []
    assert made.expire(1_000) == [1]

    assert (made.global_watermark, made.liveness.timed_out) == (9, (1,))


def test_a_timed_out_subtask_that_reports_counts_again_and_the_global_watermark_does_not_fall():
    made = group(2, s0=5, s1=3)
    keep_alive(made, 0, 9, 1_000)
    made.report(1, ACTIVE, 4, 1_001)
    made.report(0, ACTIVE, 50, 1_001)

    assert (made.global_watermark, made.liveness.timed_out, made.lowest_subtask) == (9, (), 1)


def test_a_subtask_that_renews_does_not_time_out():
    made = group(2, s0=5, s1=3)
    for now in range(0, 5_000, 100):
        made.liveness.renew(0, now)
        made.liveness.renew(1, now)
        assert made.expire(now) == []


def test_after_a_suspension_of_the_group_the_timeouts_start_again():
    made = group(2, s0=5, s1=3)
    made.expire(400)
    assert made.expire(100_000) == [], "no check for so long: the process was suspended"
    for now in (100_400, 100_800, 100_999):
        made.report(0, ACTIVE, 7, now)
        assert made.expire(now) == []

    assert made.expire(101_000) == [1]


def test_after_a_suspension_of_the_group_the_start_up_timeout_starts_again():
    made = group(2)
    keep_alive(made, 0, 5, 1_000)
    keep_alive(made, 0, 5, 52_900, 50_000)
    assert made.global_watermark is None
    keep_alive(made, 0, 5, 53_000, 53_000)

    assert made.global_watermark == 5


def test_with_no_active_subtask_the_global_watermark_stays():
    made = group(2, s0=5, s1=7)
    made.report(0, IDLE, None, 0)
    made.report(1, LEFT, None, 0)

    assert made.global_watermark == 7


def test_a_subtask_that_left_does_not_time_out():
    made = group(2, s0=5, s1=7)
    made.report(0, LEFT, None, 0)
    keep_alive(made, 1, 8, 5_000)

    assert (made.global_watermark, made.liveness.timed_out) == (8, ())


def test_a_generation_is_empty_when_all_left_timed_out_or_lost_their_connection():
    made = group(3, s0=1, s1=1, s2=1)
    made.report(0, LEFT, None, 0)
    made.liveness.disconnect(1)
    assert not made.liveness.is_empty()
    assert made.liveness.is_empty(except_for={2})
    made.expire(500)
    made.expire(1_000)

    assert made.liveness.is_empty()


def test_a_subtask_that_joins_again_keeps_the_global_watermark_from_rising_until_it_reports():
    made = group(2, s0=5, s1=7)
    made.report(1, LEFT, None, 0)
    made.join(1, 0)
    made.report(0, ACTIVE, 50, 0)

    assert (made.global_watermark, made.lowest_subtask) == (5, 1)


def test_finished_shards_beyond_the_limit_are_dropped_with_one_warning(monkeypatch, caplog):
    monkeypatch.setattr(watermark_group, "MAX_FINISHED_CHARACTERS", 7)
    made = group(1)
    made.finished_shards.add(["s/a", "s/b", "s/c", "s/a"])
    made.finished_shards.add(["s/c", "s/d"])

    assert set(made.finished_shards) == {"s/a", "s/b"}
    assert [message for message in caplog.messages if "limit of 7 characters" in message] == [
        "the keys of 2 finished shards fill their limit of 7 characters: "
        "the end of 's/c' is not passed on to other subtasks, nor are later ones"
    ]


def test_a_value_known_to_a_subtask_only_raises_the_global_watermark():
    made = group(1, s0=5)
    made.raise_to(3)
    assert made.global_watermark == 5
    made.raise_to(30)

    assert made.global_watermark == 30


@pytest.mark.parametrize("count", [1, 2])
def test_the_lowest_subtasks_below_a_bound_are_found(count):
    made = group(4, s0=5, s1=3, s2=30, s3=4)

    assert made.subtasks_below(10, count) == [1, 3][:count]


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
    return -math.inf if made.global_watermark is None else made.global_watermark


def expected(before, reported):
    """The lowest watermark of the subtasks that count, but no less than before. One that has not joined, or has no watermark, is lowest."""
    counting = [each for each in reported.values() if isinstance(each, tuple) or each == "expected"]
    levels = [-math.inf if each in ("expected", (None,)) else each[0] for each in counting]
    return max(before, min(levels, default=-math.inf))


@given(EVENTS, st.none() | st.integers(-50, 50))
def test_the_global_watermark_never_falls_and_rises_only_to_the_lowest_subtask_that_counts(events, start):
    """Compared with a model that records every subtask and takes the minimum."""
    made = WatermarkGroup(4, TIMEOUTS, 0)
    made.start_at(start)
    now, checked = 0, 0
    last_seen, reported = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), "expected")
    for subtask, status, watermark, passed in events:
        now += passed
        before = value_of(made)
        if now - checked > TIMEOUTS.heartbeat_ms / 2:
            last_seen = dict.fromkeys(last_seen, now)
        checked = now
        for each, moment in last_seen.items():
            limit = TIMEOUTS.startup_ms if reported[each] == "expected" else TIMEOUTS.heartbeat_ms
            if reported[each] not in ("left", "timed out") and now - moment >= limit:
                reported[each] = "timed out"
        made.expire(now)
        before = expected(before, reported)  # a subtask that timed out now may have kept the value from rising
        assert value_of(made) == before
        if status == "lost":
            made.liveness.disconnect(subtask)
        elif status != "nothing":
            last_seen[subtask] = now
            reported[subtask] = {IDLE: "idle", LEFT: "left"}.get(status, (watermark,))
            made.report(subtask, status, watermark if status is ACTIVE else None, now)
        assert value_of(made) == expected(before, reported)
        assert made.liveness.timed_out == tuple(each for each, word in reported.items() if word == "timed out")
        assert made.liveness.not_joined == [each for each, word in reported.items() if word == "expected"]
