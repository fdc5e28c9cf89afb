"""A shard is never sent more than its limits allow, however long calls are delayed (K1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.plugins.sinks.kinesis.shard_queues import TargetShardQueue
from recordpublisher.plugins.sinks.kinesis.shard_rate import MAX_CREDIT_SECONDS, ShardRateLimit
from recordpublisher.publishers.shards import Shard

from random_inputs import inputs

LIMIT = 1_000
"""Records a second, and a second's worth at once (service limits)."""
BURST = LIMIT // 4


def a_queue():
    queue = TargetShardQueue(Shard("s", "a"), ShardRateLimit(LIMIT, 2**20))
    for number in range(10_000):
        queue.add(PendingRecord(b"x", str(number), None, 1), 0.0)
    return queue


def send(queue, now):
    """Send what may be sent now; returns the records of each call, and the seconds that the shard needs for them."""
    calls = []
    while queue.records and queue.may_send and queue.next_send_at <= now:
        taken = queue.take(LIMIT, 2**20, is_due=True)
        calls.append((len(taken[0]), queue.mark_sent(taken, now)))
    return calls


def test_unused_time_may_be_caught_up_on_within_a_bound():
    queue = a_queue()
    for records, needed in send(queue, 60.0):
        queue.mark_completed(records, needed, 60.0)
    assert queue.next_send_at == pytest.approx(60 + BURST / LIMIT)
    taken = queue.take(100, 2**20, is_due=True)
    queue.mark_sent(taken, 60.4)
    assert queue.next_send_at == pytest.approx(60 + BURST / LIMIT + 0.1)


def test_no_more_is_in_flight_than_the_shard_takes_in_one_burst():
    queue = a_queue()
    sent = sum(records for second in range(60, 70) for records, _ in send(queue, second))
    assert sent == BURST + MAX_CREDIT_SECONDS * LIMIT


def test_a_completed_call_allows_as_many_records_as_it_carried():
    queue = a_queue()
    calls = send(queue, 60.0)
    queue.mark_completed(*calls[0], 61.0)
    assert send(queue, 61.0) == []
    assert [records for records, _ in send(queue, 61.25)] == [BURST]


@settings(max_examples=inputs(300, 60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.01, 0.25, 0.5, 3.0]), st.booleans(), st.booleans()), max_size=40))
def test_a_shard_never_gets_more_than_its_limits_however_long_calls_are_delayed(steps):
    """Delayed calls reach the shard all at once; so do their results."""
    queue, now = a_queue(), 100.0
    level, filled_at = float(LIMIT), now
    in_transit, awaiting_result = [], []
    for seconds, calls_arrive, results_arrive in steps:
        in_transit += send(queue, now)
        now += seconds
        if calls_arrive:
            arriving = sum(records for records, _ in in_transit)
            level, filled_at = min(LIMIT, level + (now - filled_at) * LIMIT) - arriving, now
            assert level >= -1e-6
            awaiting_result, in_transit = awaiting_result + in_transit, []
        if results_arrive:
            for records, needed in awaiting_result:
                queue.mark_completed(records, needed, now)
            awaiting_result = []


@pytest.mark.parametrize(("size", "longest"), [(1_000_000, 2.0), (10 * 2**20, 10.0)])
def test_k1_the_pause_before_a_refused_large_record_is_bounded(size, longest):
    queue, now, pauses = TargetShardQueue(Shard("s", "a"), ShardRateLimit(LIMIT, 2**20, longest_pause=2.0)), 0.0, []
    queue.add(PendingRecord(b"", "k", None, size), now)
    for _ in range(20):
        taken = queue.take(LIMIT, 2**20, is_due=True)
        seconds = queue.mark_sent(taken, now)
        queue.mark_completed(1, seconds, now)
        queue.adapt_rate(seconds, 1.0, now)
        queue.put_back(taken[0])
        pauses.append(queue.next_send_at - now)
        now = queue.next_send_at
    assert max(pauses) == longest
