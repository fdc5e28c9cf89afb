import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.resharding import merge, split, update_shard_count
from recordpublisher.local.streams.shard import HASH_KEYS, HashRange, uniform_ranges
from recordpublisher.local.streams.stream import Stream


@pytest.fixture
def stream(clock: ManualClock) -> Stream:
    return Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 2, clock)


def ranges(stream: Stream) -> list[HashRange]:
    return [shard.hash_range for shard in stream.open_shards]


def test_a_split_closes_the_parent_and_opens_two_children_with_its_range(stream: Stream):
    parent = stream.open_shards[0]
    low, high = split(stream, parent, 1000)
    assert not parent.is_open
    assert parent.children == [low, high]
    assert low.hash_range == HashRange(0, 999)
    assert high.hash_range == HashRange(1000, parent.hash_range.end)
    assert low.parents == high.parents == (parent,)


def test_the_parents_records_are_kept_and_the_childrens_sequence_numbers_are_greater(stream: Stream):
    before = stream.put(b"before", "k", hash_key=5)
    parent = stream.open_shards[0]
    split(stream, parent, 1000)
    after = stream.put(b"after", "k", hash_key=5)
    assert len(parent.log) == 1
    ending = parent.describe()["SequenceNumberRange"]["EndingSequenceNumber"]  # type: ignore[index]
    assert int(before) < int(ending) < int(after)


@pytest.mark.parametrize("key", [0, 1, HASH_KEYS // 2 - 1, HASH_KEYS // 2, HASH_KEYS - 1])
def test_a_split_outside_the_shard_or_at_its_edge_is_refused(stream: Stream, key: int):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        split(stream, stream.open_shards[0], key)


def test_a_merge_opens_one_child_of_both_parents(stream: Stream):
    low, high = stream.open_shards
    child = merge(stream, low, high)
    assert child.parents == (low, high)
    assert child.describe()["ParentShardId"] == low.id
    assert child.describe()["AdjacentParentShardId"] == high.id
    assert ranges(stream) == [HashRange(0, HASH_KEYS - 1)]


def test_only_open_adjacent_shards_can_be_merged(stream: Stream):
    low, high = stream.open_shards
    first, _ = split(stream, low, 1000)
    for one, other in ((first, high), (low, high), (high, low), (high, high)):
        with pytest.raises(ApiError, match="InvalidArgumentException"):
            merge(stream, one, other)


@pytest.mark.parametrize("target", [1, 2, 3, 4])
def test_a_new_shard_count_gives_uniform_ranges(stream: Stream, target: int):
    update_shard_count(stream, target)
    assert ranges(stream) == uniform_ranges(target)


@pytest.mark.parametrize("target", [5, 100])
def test_more_than_double_the_shard_count_is_refused(stream: Stream, target: int):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        update_shard_count(stream, target)


def test_less_than_half_the_shard_count_is_refused(clock: ManualClock):
    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 5, clock)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        update_shard_count(stream, 2)
