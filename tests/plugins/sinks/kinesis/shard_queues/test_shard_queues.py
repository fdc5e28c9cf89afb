"""ShardQueues follow the shard map: the right shard for a key, and what becomes of a queue when its shard is closed (K4)."""

import pytest

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.rate_control import ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.shard_queues.kpl_aggregator import KplAggregator
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_map import ShardMap
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_queues import ShardQueues
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

HALF = 2**127
LEFT = Shard("s", "left", hash_range=HashRange(0, HALF - 1))
RIGHT = Shard("s", "right", hash_range=HashRange(HALF, MAX_HASH_KEY))
WHOLE = Shard("s", "whole")
CLOSED = Shard("s", "whole", closed=True)


def lanes_of(*shards, distributes_by_key=True, aggregation=None):
    return ShardQueues(ShardMap.of(shards, distributes_by_key), ShardRateLimit(1_000, 2**20), aggregation)


def at(hash_key, data=b"x"):
    return PendingRecord(data, "k", str(hash_key), len(data) + 1)


def test_the_hash_key_decides():
    lanes = lanes_of(RIGHT, LEFT)
    found = [lanes.of(at(key)).shard.shard_id for key in (0, HALF - 1, HALF, MAX_HASH_KEY)]
    assert found == ["left", "left", "right", "right"]


def test_without_an_explicit_one_it_is_the_md5_of_the_key():
    lanes = lanes_of(LEFT, RIGHT)
    # md5("a") = 0cc1..., md5("b") = 92eb...
    assert lanes.of(PendingRecord(b"", "a", None, 1)).shard is LEFT
    assert lanes.of(PendingRecord(b"", "b", None, 1)).shard is RIGHT
    assert lanes.of(PendingRecord(b"", "b", None, 1)).shard is RIGHT


def test_closed_shards_take_nothing():
    lanes = lanes_of(CLOSED, LEFT, RIGHT)
    assert {lane.shard.shard_id for lane in lanes} == {"left", "right"}


def test_a_listing_without_an_open_shard_is_impossible():
    with pytest.raises(ImpossibleStateError):
        ShardMap.of([CLOSED])


def test_a_queue_goes_to_the_children_in_its_order():
    lanes = lanes_of(WHOLE)
    (lane,) = lanes
    for number in range(4):
        lane.add(at((number % 2) * HALF, str(number).encode()), 0.0)

    lanes.adopt(ShardMap.of([CLOSED, LEFT, RIGHT]), 1.0)

    assert {one.shard.shard_id: [each.data for each in one.queue] for one in lanes} == {
        "left": [b"0", b"2"],
        "right": [b"1", b"3"],
    }
    assert lane not in lanes
    assert lane.queued_bytes == 0


def test_an_aggregate_in_the_queue_is_taken_apart_for_the_children():
    aggregation = KplAggregator(10, 51_200)
    lanes = lanes_of(WHOLE, aggregation=aggregation)
    (lane,) = lanes
    lane.add(aggregation.record_of([at(0, b"1"), at(HALF, b"2")]), 0.0)

    lanes.adopt(ShardMap.of([LEFT, RIGHT]), 1.0)

    assert [[each.data for each in one.queue] for one in lanes] == [[b"1"], [b"2"]]


def test_a_shard_that_stays_keeps_its_lane():
    lanes = lanes_of(LEFT, RIGHT)
    left = lanes.of(at(0))
    lanes.adopt(ShardMap.of([LEFT, RIGHT]), 1.0)
    assert lanes.of(at(0)) is left


def test_where_keys_do_not_decide_there_is_one_lane_with_the_pace_of_all():
    lanes = lanes_of(LEFT, RIGHT, distributes_by_key=False)
    (lane,) = lanes
    assert lanes.of(at(0)) is lanes.of(at(HALF)) is lane
    assert lane.pace.records_per_second == 2_000
    lanes.adopt(ShardMap.of([LEFT, RIGHT, WHOLE], distributes_by_key=False), 1.0)
    assert lane.pace.records_per_second == 3_000
