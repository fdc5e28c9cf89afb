"""Which call goes when: plain decisions (K1, K4)."""

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.put_records.request import NEVER, Request, RequestLimits, take_next_request
from recordpublisher.plugins.sinks.kinesis.rate_control import ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.shard_queues.kpl_aggregator import KplAggregator
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_queue import AggregatingShardQueue, ShardQueue
from recordpublisher.publishers.shards import Shard

LIMITS = RequestLimits(records=10, bytes=1_000, linger_seconds=0.1)
FAST = ShardRateLimit(1e6, 1e9)


def a_lane(records=0, size=10, since=0.0, pace=FAST, name="a"):
    lane = ShardQueue(Shard("s", name), pace)
    for number in range(records):
        lane.add(PendingRecord(bytes(size), str(number), None, size), since)
    return lane


def counts(request):
    return [len(share.records) for share in request.batches]


def test_nothing_waits():
    assert take_next_request([a_lane()], 0.0, LIMITS) == NEVER


def test_what_does_not_fill_a_call_waits_for_the_linger():
    lane = a_lane(3, since=5.0)
    assert take_next_request([lane], 5.05, LIMITS) == 5.1
    assert counts(take_next_request([lane], 5.1, LIMITS)) == [3]


def test_a_full_call_goes_at_once_by_count_or_by_bytes():
    assert counts(take_next_request([a_lane(4), a_lane(7)], 0.0, LIMITS)) == [4, 6]
    assert counts(take_next_request([a_lane(3, size=400)], 0.0, LIMITS)) == [2]


def test_a_record_larger_than_the_call_goes_alone():
    first, second = a_lane(1, size=5_000), a_lane(1, size=5_000)
    assert counts(take_next_request([first, second], 0.0, LIMITS)) == [1]
    assert counts(take_next_request([first, second], 0.0, LIMITS)) == [1]


def test_a_large_record_does_not_lift_another_call_above_its_bytes():
    small, large = a_lane(5, size=100), a_lane(1, size=900)
    request = take_next_request([small, large], 1.0, LIMITS)
    assert counts(request) == [5]
    assert [one.size for one in large.queue] == [900]


def test_a_lane_that_rests_is_looked_at_when_its_turn_comes():
    lane = a_lane(20)
    lane.turn = 3.0
    assert take_next_request([lane], 1.0, LIMITS) == 3.0
    assert isinstance(take_next_request([lane], 3.0, LIMITS), Request)


def test_a_lane_whose_window_is_full_waits_for_an_answer():
    lane = a_lane(20)
    lane.window.size = 5
    assert counts(take_next_request([lane], 0.2, LIMITS)) == [5]
    lane.turn = 0.0
    assert take_next_request([lane], 0.2, LIMITS) == NEVER
    lane.answered(5, 0.0, 0.2)
    assert counts(take_next_request([lane], 0.2, LIMITS)) == [5]


def test_a_lane_that_was_served_goes_behind_the_others():
    lanes = [a_lane(50, name="a"), a_lane(50, name="b")]
    served = [take_next_request(lanes, 1.0, LIMITS).batches[0].lane.shard.shard_id for _ in range(4)]
    assert set(served) == {"a", "b"}


def test_the_pace_hands_out_a_quarter_second():
    lane = a_lane(300, pace=ShardRateLimit(100, 2**20))
    assert counts(take_next_request([lane], 1.0, RequestLimits(500, 2**20, 0.1))) == [25]


def aggregating(records, since=0.0):
    lane = AggregatingShardQueue(Shard("s", "a"), FAST, KplAggregator(4, 51_200))
    for number in range(records):
        lane.add(PendingRecord(b"x", str(number), None, 2), since)
    return lane


def test_k1_half_filled_aggregates_wait_for_the_linger():
    lane = aggregating(10)
    assert take_next_request([lane], 0.05, LIMITS) == 0.1
    request = take_next_request([lane], 0.1, LIMITS)
    assert [len(one.parts) for one in request.batches[0].records] == [4, 4, 2]


def test_full_aggregates_that_fill_a_call_leave_the_half_filled_one_behind():
    lane = aggregating(43)
    request = take_next_request([lane], 0.05, LIMITS)
    assert [len(one.parts) for one in request.batches[0].records] == [4] * 10
    assert len(lane.queue) == 3
    assert take_next_request([lane], 0.06, LIMITS) > 0.1
