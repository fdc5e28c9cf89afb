"""Aggregates as the KPL writes them, read back by the publishers and compared with the tests' own encoder (K4)."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord, size_of
from recordpublisher.plugins.sinks.kinesis.shard_queues import KplAggregator, split_aggregate
from recordpublisher.publishers.aggregation.kpl_format import KPL_MAGIC, encode_aggregate, hash_key_of
from recordpublisher.publishers.records import UserRecord

from fakes.batches import user_records
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


def a_record(data=b"x", key="k", hash_key=None):
    return PendingRecord(data, key, hash_key, size_of(data, key))


@settings(max_examples=50, deadline=None)
@given(parts)
def test_aggregates_are_read_back(given_parts):
    raw = UserRecord(encode_aggregate(given_parts), "1", 17.0, "k")
    read = [(one.partition_key, one.explicit_hash_key, one.data) for one in user_records(raw)]
    assert read == given_parts


def test_the_bytes_equal_those_of_the_tests_encoder():
    assert encode_aggregate([("a", None, b"1"), ("b", "77", b"2"), ("a", None, b"3")]) == aggregate(
        ("a", b"1"), ("b", b"2", "77"), ("a", b"3")
    )


def test_an_aggregate_goes_to_the_shard_of_its_parts():
    made = KplAggregator(100, 51_200).aggregate([a_record(key="first"), a_record(key="second")])
    assert made.partition_key == "first"
    assert made.explicit_hash_key == str(hash_key_of("first", None))
    assert made.size == len(made.data) + len("first")
    assert [part.partition_key for part in made.user_records] == ["first", "second"]


def test_a_single_record_is_not_aggregated():
    one = a_record()
    assert KplAggregator(100, 51_200).aggregate([one]) is one


@settings(max_examples=50, deadline=None)
@given(st.integers(64, 2_000), st.lists(st.integers(0, 700), min_size=1, max_size=60))
def test_an_aggregate_never_exceeds_its_size_unless_one_record_does(most, sizes):
    aggregator = KplAggregator(1_000, most)
    queue = deque(a_record(bytes(size), f"key-{size}", "1" if size % 3 else None) for size in sizes)
    while queue:
        parts = aggregator.take_parts(queue, most)
        made = aggregator.aggregate(parts)
        assert len(made.data) <= most or len(parts) == 1
        assert made.data.startswith(KPL_MAGIC) == (len(parts) > 1)


def test_the_number_of_parts_is_bounded():
    queue = deque(a_record() for _ in range(10))
    assert len(KplAggregator(3, 51_200).take_parts(queue, 51_200)) == 3


def test_an_existing_aggregate_is_sent_alone():
    aggregator = KplAggregator(100, 51_200)
    ready = aggregator.aggregate([a_record(), a_record()])
    queue = deque([a_record(), ready, a_record()])
    assert [len(aggregator.take_parts(queue, 51_200)) for _ in range(3)] == [1, 1, 1]


def test_records_of_one_key_for_several_shards_are_not_aggregated():
    queue = deque([a_record(hash_key="1"), a_record(hash_key="1"), a_record(hash_key="2")])
    assert len(KplAggregator(100, 51_200).take_parts(queue, 51_200, of_one_key=True)) == 2


def test_an_aggregate_is_split_for_new_shards_unless_its_parts_have_one_key():
    aggregator = KplAggregator(100, 51_200)
    mixed = aggregator.aggregate([a_record(key="a"), a_record(key="b")])
    alike = aggregator.aggregate([a_record(b"1"), a_record(b"2")])
    assert split_aggregate(mixed) == mixed.parts
    assert split_aggregate(alike) == (alike,)
    plain = a_record()
    assert split_aggregate(plain) == (plain,)
