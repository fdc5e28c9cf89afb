"""The queue of a key by the shard map, and how queued records move when a shard is closed (K4)."""

import pytest

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.plugins.sinks.kinesis.shard_queues import KplAggregator, ShardMap, ShardQueues
from recordpublisher.plugins.sinks.kinesis.shard_rate import ShardRateLimit
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

HALF = 2**127
LEFT = Shard("s", "left", hash_range=HashRange(0, HALF - 1))
RIGHT = Shard("s", "right", hash_range=HashRange(HALF, MAX_HASH_KEY))
WHOLE = Shard("s", "whole")
CLOSED = Shard("s", "whole", closed=True)


def queues_of(*shards, distributes_by_key=True, aggregator=None):
    return ShardQueues(ShardMap.of(shards, distributes_by_key), ShardRateLimit(1_000, 2**20), aggregator)


def at(hash_key, data=b"x"):
    return PendingRecord(data, "k", str(hash_key), len(data) + 1)


def test_the_hash_key_decides_the_shard():
    queues = queues_of(RIGHT, LEFT)
    found = [queues.queue_for(at(key)).shard.shard_id for key in (0, HALF - 1, HALF, MAX_HASH_KEY)]
    assert found == ["left", "left", "right", "right"]


def test_without_an_explicit_hash_key_it_is_the_md5_of_the_key():
    queues = queues_of(LEFT, RIGHT)
    # md5("a") = 0cc1..., md5("b") = 92eb...
    assert queues.queue_for(PendingRecord(b"", "a", None, 1)).shard is LEFT
    assert queues.queue_for(PendingRecord(b"", "b", None, 1)).shard is RIGHT
    assert queues.queue_for(PendingRecord(b"", "b", None, 1)).shard is RIGHT


def test_closed_shards_take_nothing():
    queues = queues_of(CLOSED, LEFT, RIGHT)
    assert {queue.shard.shard_id for queue in queues} == {"left", "right"}


def test_a_listing_without_an_open_shard_is_impossible():
    with pytest.raises(ImpossibleStateError):
        ShardMap.of([CLOSED])


def test_queued_records_move_to_the_child_shards_in_order():
    queues = queues_of(WHOLE)
    (queue,) = queues
    for number in range(4):
        queue.add(at((number % 2) * HALF, str(number).encode()), 0.0)

    queues.update(ShardMap.of([CLOSED, LEFT, RIGHT]), 1.0)

    assert {one.shard.shard_id: [each.data for each in one.records] for one in queues} == {
        "left": [b"0", b"2"],
        "right": [b"1", b"3"],
    }
    assert queue not in queues
    assert queue.queued_bytes == 0


def test_a_queued_aggregate_is_split_for_the_child_shards():
    aggregator = KplAggregator(10, 51_200)
    queues = queues_of(WHOLE, aggregator=aggregator)
    (queue,) = queues
    queue.add(aggregator.aggregate([at(0, b"1"), at(HALF, b"2")]), 0.0)

    queues.update(ShardMap.of([LEFT, RIGHT]), 1.0)

    assert [[each.data for each in one.records] for one in queues] == [[b"1"], [b"2"]]


def test_an_open_shard_keeps_its_queue():
    queues = queues_of(LEFT, RIGHT)
    left = queues.queue_for(at(0))
    queues.update(ShardMap.of([LEFT, RIGHT]), 1.0)
    assert queues.queue_for(at(0)) is left


def test_where_keys_do_not_decide_there_is_one_queue_with_the_sum_of_all_rate_limits():
    queues = queues_of(LEFT, RIGHT, distributes_by_key=False)
    (queue,) = queues
    assert queues.queue_for(at(0)) is queues.queue_for(at(HALF)) is queue
    assert queue.rate_limit.records_per_second == 2_000
    queues.update(ShardMap.of([LEFT, RIGHT, WHOLE], distributes_by_key=False), 1.0)
    assert queue.rate_limit.records_per_second == 3_000


@pytest.mark.parametrize("shards", [(WHOLE,), (LEFT, RIGHT)])
def test_many_records_at_once_get_the_queues_that_each_gets_alone(shards):
    queues = queues_of(*shards)
    records = [at(0), at(HALF), PendingRecord(b"", "a", None, 1), at(1), PendingRecord(b"", "b", None, 1)]

    found = {queue: list(some) for queue, some in queues.by_queue(records)}

    assert found == {
        queue: alone for queue in queues if (alone := [one for one in records if queues.queue_for(one) is queue])
    }
