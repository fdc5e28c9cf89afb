"""When a call is sent and which records it carries (K1, K4)."""

from dataclasses import replace

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.plugins.sinks.kinesis.put_results import (
    NEVER,
    take_next_request,
)
from recordpublisher.plugins.sinks.kinesis.shard_queues import AggregatingShardQueue, KplAggregator, TargetShardQueue
from recordpublisher.plugins.sinks.kinesis.shard_rate import ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.sink_settings import KinesisSinkSettings
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

LIMITS = replace(KinesisSinkSettings.of(Properties()), request_count=10, request_bytes=1_000, linger_seconds=0.1)
FAST = ShardRateLimit(1e6, 1e9)


def a_queue(records=0, size=10, since=0.0, rate_limit=FAST, name="a"):
    queue = TargetShardQueue(Shard("s", name), rate_limit)
    for number in range(records):
        queue.add(PendingRecord(bytes(size), str(number), None, size), since)
    return queue


def counts(request):
    return [len(batch.records) for batch in request]


def test_without_records_there_is_no_call():
    assert take_next_request([a_queue()], 0.0, LIMITS) == NEVER


def test_records_that_do_not_fill_a_call_wait_for_the_linger():
    queue = a_queue(3, since=5.0)
    assert take_next_request([queue], 5.05, LIMITS) == 5.1
    assert counts(take_next_request([queue], 5.1, LIMITS)) == [3]


def test_a_call_full_by_count_or_by_bytes_is_sent_at_once():
    assert counts(take_next_request([a_queue(4), a_queue(7)], 0.0, LIMITS)) == [4, 6]
    assert counts(take_next_request([a_queue(3, size=400)], 0.0, LIMITS)) == [2]


def test_a_record_larger_than_the_call_limit_is_sent_alone():
    first, second = a_queue(1, size=5_000), a_queue(1, size=5_000)
    assert counts(take_next_request([first, second], 0.0, LIMITS)) == [1]
    assert counts(take_next_request([first, second], 0.0, LIMITS)) == [1]


def test_a_large_record_does_not_push_a_call_above_its_byte_limit():
    small, large = a_queue(5, size=100), a_queue(1, size=900)
    request = take_next_request([small, large], 1.0, LIMITS)
    assert counts(request) == [5]
    assert [one.size for one in large.records] == [900]


def test_a_paused_shard_is_checked_when_its_pause_ends():
    queue = a_queue(20)
    queue.next_send_at = 3.0
    assert take_next_request([queue], 1.0, LIMITS) == 3.0
    assert counts(take_next_request([queue], 3.0, LIMITS)) == [10]


def test_a_shard_with_three_bursts_in_flight_waits_for_a_completion():
    queue = a_queue(20, rate_limit=ShardRateLimit(20, 2**20))
    for _ in range(3):
        assert counts(take_next_request([queue], 0.2, LIMITS)) == [5]
        queue.next_send_at = 0.0
    assert take_next_request([queue], 0.2, LIMITS) == NEVER
    queue.mark_completed(5, 0.25, 0.2)
    queue.next_send_at = 0.0
    assert counts(take_next_request([queue], 0.2, LIMITS)) == [5]


def test_the_shard_that_waited_longest_goes_first():
    queues = [a_queue(50, name="a"), a_queue(50, name="b")]
    served = [take_next_request(queues, 1.0, LIMITS)[0].queue.shard.shard_id for _ in range(4)]
    assert set(served) == {"a", "b"}


def test_a_shard_is_sent_at_most_a_quarter_second_of_its_rate_at_once():
    queue = a_queue(300, rate_limit=ShardRateLimit(100, 2**20))
    assert counts(take_next_request([queue], 1.0, replace(LIMITS, request_count=500, request_bytes=2**20))) == [25]


def aggregating(records, since=0.0):
    queue = AggregatingShardQueue(Shard("s", "a"), FAST, KplAggregator(4, 51_200))
    for number in range(records):
        queue.add(PendingRecord(b"x", str(number), None, 2), since)
    return queue


def test_k1_partly_filled_aggregates_wait_for_the_linger():
    queue = aggregating(10)
    assert take_next_request([queue], 0.05, LIMITS) == 0.1
    request = take_next_request([queue], 0.1, LIMITS)
    assert [len(one.parts) for one in request[0].records] == [4, 4, 2]


def test_a_full_call_of_aggregates_leaves_the_partly_filled_one_queued():
    queue = aggregating(43)
    request = take_next_request([queue], 0.05, LIMITS)
    assert [len(one.parts) for one in request[0].records] == [4] * 10
    assert len(queue.records) == 3
    assert take_next_request([queue], 0.06, LIMITS) > 0.1


def test_k1_what_fills_a_call_but_no_aggregate_is_checked_again_at_its_linger():
    queues = [aggregating_by_bytes(600, f"s{number}") for number in range(2)]
    assert take_next_request(queues, 0.05, LIMITS) == 0.1
    assert counts(take_next_request(queues, 0.1, LIMITS)) == [1]


def aggregating_by_bytes(size, name):
    queue = AggregatingShardQueue(Shard("s", name), FAST, KplAggregator(4, 700))
    queue.add(PendingRecord(bytes(size), "k", None, size), 0.0)
    return queue
