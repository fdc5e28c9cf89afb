"""A shard's hash range, its log and its sequence numbers."""

from itertools import pairwise

import msgspec
import pytest

from recordpublisher.local.errors import ApiError
from recordpublisher.local.shard import (
    HASH_KEYS,
    HashRange,
    LogSlice,
    SequenceNumbers,
    ShardLog,
    explicit_hash,
    hash_of,
    uniform_ranges,
)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_uniform_ranges_cover_all_hash_keys_without_gap_or_overlap(count: int):
    ranges = uniform_ranges(count)
    assert ranges[0].start == 0
    assert ranges[-1].end == HASH_KEYS - 1
    assert all(low.end + 1 == high.start for low, high in pairwise(ranges))


def test_four_shards_have_the_documented_boundaries():
    assert uniform_ranges(4)[1] == HashRange(
        85070591730234615865843651857942052864, 170141183460469231731687303715884105727
    )


def test_the_hash_of_a_partition_key_is_its_md5():
    assert hash_of("a") == 0x0CC175B9C0F1B6A831C399E269772661


def test_an_explicit_hash_key_is_below_2_to_the_128():
    assert explicit_hash(str(HASH_KEYS - 1)) == HASH_KEYS - 1
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        explicit_hash(str(HASH_KEYS))


@pytest.fixture
def log() -> ShardLog:
    return ShardLog(SequenceNumbers.of_shard(0, 0))


def keys(found: LogSlice) -> list[str]:
    return [msgspec.json.decode(fragment)["PartitionKey"] for fragment in found.fragments]


def append(log: ShardLog, key: str, now_ms: int, size: int = 10) -> str:
    return log.append("YQ==", f'"{key}"', size, now_ms)


def test_a_record_is_stored_as_a_json_fragment(log: ShardLog):
    number = append(log, "k", 1_700_000_000_123)
    assert msgspec.json.decode(log.read(0, 10, 100).fragments[0]) == {
        "SequenceNumber": number,
        "ApproximateArrivalTimestamp": 1_700_000_000.123,
        "Data": "YQ==",
        "PartitionKey": "k",
    }


def test_sequence_numbers_grow_even_when_the_clock_goes_back(log: ShardLog):
    numbers = [append(log, "k", now) for now in (5, 5, 3, 9)]
    assert numbers == sorted(set(numbers))


def test_a_read_continues_after_the_last_one(log: ShardLog):
    for key in "abc":
        append(log, key, 1)
    first = log.read(0, 2, 1000)
    second = log.read(first.next_counter, 2, 1000)
    assert (keys(first), keys(second)) == (["a", "b"], ["c"])
    assert (first.unread_arrival_ms, second.unread_arrival_ms) == (1, None)


def test_a_read_is_limited_in_bytes_but_has_at_least_one_record(log: ShardLog):
    for key in "abc":
        append(log, key, 1, size=10)
    assert keys(log.read(0, 10, 20)) == ["a", "b"]
    assert keys(log.read(0, 10, 19)) == ["a"]
    assert keys(log.read(0, 10, 1)) == ["a"]


def test_a_mark_is_between_earlier_and_later_records(log: ShardLog):
    append(log, "before", 7)
    mark = log.use_counter(7)
    append(log, "after", 7)
    assert keys(log.read(mark + 1, 10, 1000)) == ["after"]


def test_marks_grow_with_the_clock(log: ShardLog):
    assert log.use_counter(1) < log.use_counter(2) < log.use_counter(2)


def test_a_timestamp_gives_the_first_record_at_or_after_it(log: ShardLog):
    for key, now in (("a", 10), ("b", 20), ("c", 20), ("d", 30)):
        append(log, key, now)
    assert keys(log.read(log.counter_at(20), 10, 1000)) == ["b", "c", "d"]
    assert keys(log.read(log.counter_at(21), 10, 1000)) == ["d"]


def test_a_timestamp_after_the_last_record_gives_the_tip(log: ShardLog):
    append(log, "old", 10)
    counter = log.counter_at(11)
    append(log, "new", 10)
    assert keys(log.read(counter, 10, 1000)) == ["new"]


def test_after_trimming_reads_are_still_limited_in_bytes(log: ShardLog):
    for now in range(6):
        append(log, str(now), now, size=10)
    log.trim(3)
    assert len(log) == 3
    found = log.read(0, 10, 20)
    assert (keys(found), found.size) == (["3", "4"], 20)
    log.trim(100)
    append(log, "new", 100, size=10)
    assert log.read(0, 10, 1).size == 10


def test_listeners_are_called_until_they_are_removed(log: ShardLog):
    notifications: list[str] = []
    unlisten = log.listen(lambda: notifications.append("notified"))
    log.notify()
    unlisten()
    log.notify()
    assert notifications == ["notified"]


def test_a_sequence_number_has_56_digits_and_contains_its_counter():
    numbers = SequenceNumbers.of_shard(1_700_000_000_000, 7)
    text = numbers.text(42)
    assert len(text) == 56
    assert numbers.counter(text) == 42


def test_a_child_has_greater_numbers_than_its_parent():
    parent, child = SequenceNumbers.of_shard(100, 9), SequenceNumbers.of_shard(101, 0)
    assert int(parent.text(10**19)) < int(child.text(0))


@pytest.mark.parametrize("foreign", ["0", "49", "x" * 56, SequenceNumbers.of_shard(1, 2).text(3)])
def test_a_number_of_another_shard_has_no_counter(foreign: str):
    assert SequenceNumbers.of_shard(1, 1).counter(foreign) is None
