"""The pace of a lane: what a shard's limits allow, however long calls are under way (K1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.rate_control import CREDIT_SECONDS, ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_queue import ShardQueue
from recordpublisher.publishers.shards import Shard

LIMIT = 1_000
"""Records a second, and a second's worth at once (service limits)."""
GRAIN = LIMIT // 4


def a_lane():
    lane = ShardQueue(Shard("s", "a"), ShardRateLimit(LIMIT, 2**20))
    for number in range(10_000):
        lane.add(PendingRecord(b"x", str(number), None, 1), 0.0)
    return lane


def send(lane, now):
    """Send what may go now, a call for each turn; what each call took, and its rest."""
    calls = []
    while lane.queue and lane.room > 0 and lane.turn <= now:
        cut = lane.take(LIMIT, 2**20, is_due=True)
        calls.append((len(cut[0]), lane.sent(cut, now)))
    return calls


def test_a_late_turn_is_caught_up_on_but_not_without_bound():
    lane = a_lane()
    for records, rest in send(lane, 60.0):
        lane.answered(records, rest, 60.0)
    assert lane.turn == pytest.approx(60 + GRAIN / LIMIT)
    cut = lane.take(100, 2**20, is_due=True)
    lane.sent(cut, 60.4)
    assert lane.turn == pytest.approx(60 + GRAIN / LIMIT + 0.1)


def test_no_more_is_in_flight_than_the_shard_takes_at_once():
    lane = a_lane()
    sent = sum(records for second in range(60, 70) for records, _ in send(lane, second))
    assert sent == GRAIN + CREDIT_SECONDS * LIMIT


def test_an_answer_makes_room_for_as_much_as_it_was_about():
    lane = a_lane()
    calls = send(lane, 60.0)
    lane.answered(*calls[0], 61.0)
    assert send(lane, 61.0) == []
    assert [records for records, _ in send(lane, 61.25)] == [GRAIN]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.01, 0.25, 0.5, 3.0]), st.booleans(), st.booleans()), max_size=40))
def test_a_shard_never_gets_more_than_its_limits_however_long_calls_are_held_up(steps):
    """What is under way arrives when the network lets it, all together; so do the answers."""
    lane, now = a_lane(), 100.0
    level, filled_at = float(LIMIT), now
    under_way, answering = [], []
    for seconds, calls_arrive, answers_arrive in steps:
        under_way += send(lane, now)
        now += seconds
        if calls_arrive:
            arriving = sum(records for records, _ in under_way)
            level, filled_at = min(LIMIT, level + (now - filled_at) * LIMIT) - arriving, now
            assert level >= -1e-6
            answering, under_way = answering + under_way, []
        if answers_arrive:
            for records, rest in answering:
                lane.answered(records, rest, now)
            answering = []
