"""Aggregates as the KPL writes them, read back by our readers and compared with an encoder of the tests (K4)."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord, size_of
from recordpublisher.plugins.sinks.kinesis.shard_queues.kpl_aggregator import KplAggregator, split_aggregate
from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.aggregation.kpl_format import MAGIC, encode_aggregate, hash_key_of
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from servers.kpl_aggregates import aggregate

parts = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=5),
        st.one_of(st.none(), st.integers(0, 2**128 - 1).map(str)),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=20,
)


def outgoing(data=b"x", key="k", hash_key=None):
    return PendingRecord(data, key, hash_key, size_of(data, key))


@settings(max_examples=50, deadline=None)
@given(parts)
def test_what_is_aggregated_is_read_back(given_parts):
    raw = UserRecord(encode_aggregate(given_parts), "1", 17.0, "k")
    deaggregator = Deaggregator(Shard("s", "a"), ShardMetrics())
    read = run_virtual(deaggregator.user_records([raw], StartingPosition.trim_horizon()))
    assert [(one.partition_key, one.explicit_hash_key, one.data) for one in read] == given_parts


def test_the_bytes_are_those_of_the_tests_own_encoder():
    assert encode_aggregate([("a", None, b"1"), ("b", "77", b"2"), ("a", None, b"3")]) == aggregate(
        ("a", b"1"), ("b", b"2", "77"), ("a", b"3")
    )


def test_an_aggregate_goes_to_the_shard_of_its_parts():
    made = KplAggregator(100, 51_200).record_of([outgoing(key="first"), outgoing(key="second")])
    assert made.partition_key == "first"
    assert made.explicit_hash_key == str(hash_key_of("first", None))
    assert made.size == len(made.data) + len("first")
    assert [part.partition_key for part in made.user_records] == ["first", "second"]


def test_one_record_alone_stays_a_plain_record():
    one = outgoing()
    assert KplAggregator(100, 51_200).record_of([one]) is one


@settings(max_examples=50, deadline=None)
@given(st.integers(64, 2_000), st.lists(st.integers(0, 700), min_size=1, max_size=60))
def test_an_aggregate_never_exceeds_its_size_unless_one_record_does(most, sizes):
    aggregation = KplAggregator(1_000, most)
    queue = deque(outgoing(bytes(size), f"key-{size}", "1" if size % 3 else None) for size in sizes)
    while queue:
        cut = aggregation.cut(queue, most)
        made = aggregation.record_of(cut)
        assert len(made.data) <= most or len(cut) == 1
        assert made.data.startswith(MAGIC) == (len(cut) > 1)


def test_the_count_is_bounded_too():
    queue = deque(outgoing() for _ in range(10))
    assert len(KplAggregator(3, 51_200).cut(queue, 51_200)) == 3


def test_an_aggregate_in_the_queue_goes_alone():
    aggregation = KplAggregator(100, 51_200)
    ready = aggregation.record_of([outgoing(), outgoing()])
    queue = deque([outgoing(), ready, outgoing()])
    assert [len(aggregation.cut(queue, 51_200)) for _ in range(3)] == [1, 1, 1]


def test_records_of_one_key_for_several_shards_are_not_put_together():
    queue = deque([outgoing(hash_key="1"), outgoing(hash_key="1"), outgoing(hash_key="2")])
    assert len(KplAggregator(100, 51_200).cut(queue, 51_200, of_one_key=True)) == 2


def test_an_aggregate_is_taken_apart_for_new_shards_unless_its_parts_stay_together():
    aggregation = KplAggregator(100, 51_200)
    mixed = aggregation.record_of([outgoing(key="a"), outgoing(key="b")])
    alike = aggregation.record_of([outgoing(b"1"), outgoing(b"2")])
    assert split_aggregate(mixed) == mixed.parts
    assert split_aggregate(alike) == (alike,)
    plain = outgoing()
    assert split_aggregate(plain) == (plain,)
