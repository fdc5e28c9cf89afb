"""A stream: its status, reshards, filters and consumers. No random reshard loses, repeats or reorders a record."""

from base64 import b64decode
from itertools import pairwise

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recordpublisher.local import ManualClock
from recordpublisher.local.errors import ApiError
from recordpublisher.local.shard import HASH_KEYS, HashRange, Shard, uniform_ranges
from recordpublisher.local.stream import HOUR_MS, ConsumerTable, Stream, filter_shards, merge, split, update_shard_count

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"

START = 1_700_000_000_000


@pytest.fixture
def stream(clock: ManualClock) -> Stream:
    return Stream(ARN, 2, clock)


def test_a_stream_is_creating_for_the_given_time(clock: ManualClock):
    stream = Stream(ARN, 1, clock, creating_ms=50)
    assert stream.status == "CREATING"
    clock.advance(50)
    assert stream.status == "ACTIVE"


def test_a_record_goes_to_the_shard_of_its_key_or_of_its_explicit_hash_key(stream: Stream):
    stream.put(b"by key", "b")  # md5 begins with 9: upper half
    stream.put(b"by hash", "b", hash_key=0)
    low, high = stream.open_shards
    assert (len(low.log), len(high.log)) == (1, 1)


def test_records_are_kept_for_the_retention_period(stream: Stream, clock: ManualClock):
    stream.put(b"old", "a")
    shard = stream.shard_for(0)
    clock.advance(24 * HOUR_MS)
    stream.shard(shard.id)
    assert len(shard.log) == 1
    clock.advance(1)
    stream.shard(shard.id)
    assert len(shard.log) == 0


def test_a_closed_shard_is_kept_until_its_last_record_is_past_retention(stream: Stream, clock: ManualClock):
    parent = stream.open_shards[0]
    clock.advance(HOUR_MS)
    split(stream, parent, 1000)
    clock.advance(24 * HOUR_MS)
    assert stream.shard(parent.id) is parent
    clock.advance(1)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        stream.shard(parent.id)
    stream.apply_retention()
    assert parent.id not in stream.shards


@pytest.mark.parametrize("spelling", ["shardId-1", "shard-000001", "1", "shardId-000000000001"])
def test_a_shard_is_found_by_the_number_in_its_id(stream: Stream, spelling: str):
    assert stream.shard(spelling).id == "shardId-000000000001"


@pytest.mark.parametrize("spelling", ["shardId-2", "shardId-", "shardId-1a", "shardId-2147483648", "shardId-\u0661"])
def test_other_spellings_find_no_shard(stream: Stream, spelling: str):
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        stream.shard(spelling)


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


class Resharding(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/s", 2, self.clock)
        self.puts: list[tuple[int, str]] = []  # hash key and sequence number, in the order of the puts

    @rule(hash_keys=st.lists(st.integers(0, HASH_KEYS - 1), min_size=1, max_size=5))
    def put(self, hash_keys: list[int]) -> None:
        for hash_key in hash_keys:
            takers = [shard for shard in self.stream.shards.values() if shard.is_open and hash_key in shard.hash_range]
            before = len(takers[0].log)
            number = self.stream.put(str(len(self.puts)).encode(), "k", hash_key)
            assert len(takers) == 1
            assert len(takers[0].log) == before + 1
            self.puts.append((hash_key, number))

    @rule(at=st.integers(2, HASH_KEYS - 2))
    def split(self, at: int) -> None:
        shard = self.stream.shard_for(at)
        if shard.hash_range.start + 1 < at < shard.hash_range.end:
            split(self.stream, shard, at)

    @rule(pick=st.integers(0, 100))
    def merge(self, pick: int) -> None:
        shards = self.stream.open_shards
        if len(shards) > 1:
            merge(self.stream, *shards[pick % (len(shards) - 1) :][:2])

    @rule(more=st.booleans())
    def update_shard_count(self, more: bool) -> None:
        current = len(self.stream.open_shards)
        update_shard_count(self.stream, min(current * 2, 12) if more else (current + 1) // 2)

    @rule(ms=st.integers(0, 10))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @invariant()
    def open_shards_cover_every_hash_key_once(self) -> None:
        ranges = [shard.hash_range for shard in self.stream.open_shards]
        assert ranges[0].start == 0
        assert ranges[-1].end == HASH_KEYS - 1
        assert all(low.end + 1 == high.start for low, high in pairwise(ranges))

    @invariant()
    def parents_then_children_returns_every_record_once_and_each_key_in_order(self) -> None:
        read = [record for shard in parents_first(self.stream) for record in records(shard)]
        assert sorted(read) == list(range(len(self.puts)))
        for hash_key in {hash_key for hash_key, _ in self.puts}:
            mine = [index for index in read if self.puts[index][0] == hash_key]
            assert mine == sorted(mine)
            numbers = [int(self.puts[index][1]) for index in mine]
            assert numbers == sorted(set(numbers))


def parents_first(stream: Stream) -> list[Shard]:
    done: list[Shard] = []
    waiting = list(reversed(stream.shards.values()))  # newest first, so that parents decide the order and not ids
    while waiting:
        ready = [shard for shard in waiting if all(parent in done for parent in shard.parents)]
        done += ready
        waiting = [shard for shard in waiting if shard not in ready]
    return done


def records(shard: Shard) -> list[int]:
    found = shard.log.read(0, 10_000, 1 << 20)
    return [int(b64decode(msgspec.json.decode(fragment)["Data"])) for fragment in found.fragments]


TestResharding = Resharding.TestCase


TestResharding.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@pytest.fixture
def resharded(clock: ManualClock) -> Stream:
    """Shard 0 is split after one hour into 1 and 2, shard 2 after another hour into 3 and 4; then an hour passes."""
    resharded = Stream("arn:aws:kinesis:us-east-1:000000000000:resharded/orders", 1, clock)
    clock.advance(HOUR_MS)
    split(resharded, resharded.open_shards[0], 1000)
    clock.advance(HOUR_MS)
    split(resharded, resharded.open_shards[1], 2000)
    clock.advance(HOUR_MS)
    return resharded


def shown(resharded: Stream, kind: str | None, shard: int | None = None, hours: float | None = None) -> list[int]:
    shard_id = None if shard is None else f"shardId-{shard:012d}"
    timestamp = None if hours is None else START + round(hours * HOUR_MS)
    return [found.index for found in filter_shards(resharded, kind, shard_id, timestamp)]


def test_no_filter_shows_all_shards(resharded: Stream):
    assert shown(resharded, None) == [0, 1, 2, 3, 4]


def test_after_shard_id_shows_the_later_ones(resharded: Stream):
    assert shown(resharded, "AFTER_SHARD_ID", shard=2) == [3, 4]


def test_at_trim_horizon_shows_where_the_oldest_records_are(resharded: Stream, clock: ManualClock):
    assert shown(resharded, "AT_TRIM_HORIZON") == [0]
    clock.advance(22 * HOUR_MS + 1)  # 25 h after the start: shard 0 closed more than 24 h ago
    assert shown(resharded, "AT_TRIM_HORIZON") == [1, 2]


def test_from_trim_horizon_shows_all_within_retention(resharded: Stream, clock: ManualClock):
    assert shown(resharded, "FROM_TRIM_HORIZON") == [0, 1, 2, 3, 4]
    clock.advance(22 * HOUR_MS + 1)
    assert shown(resharded, "FROM_TRIM_HORIZON") == [1, 2, 3, 4]


def test_at_latest_shows_the_open_ones(resharded: Stream):
    assert shown(resharded, "AT_LATEST") == [1, 3, 4]


def test_at_timestamp_shows_the_shards_open_at_that_time(resharded: Stream):
    assert shown(resharded, "AT_TIMESTAMP", hours=0.5) == [0]
    assert shown(resharded, "AT_TIMESTAMP", hours=1.5) == [1, 2]
    assert shown(resharded, "AT_TIMESTAMP", hours=3) == [1, 3, 4]


def test_from_timestamp_shows_the_shards_open_at_that_time_or_later(resharded: Stream):
    assert shown(resharded, "FROM_TIMESTAMP", hours=1.5) == [1, 2, 3, 4]
    assert shown(resharded, "FROM_TIMESTAMP", hours=2.5) == [1, 3, 4]


def test_a_timestamp_before_the_stream_counts_as_its_creation(resharded: Stream):
    assert shown(resharded, "AT_TIMESTAMP", hours=-5) == [0]


def test_a_shard_split_in_the_millisecond_of_its_creation_is_the_first_one(clock: ManualClock):
    resharded = Stream("arn:aws:kinesis:us-east-1:000000000000:resharded/orders", 1, clock)
    split(resharded, resharded.open_shards[0], 1000)
    assert shown(resharded, "AT_TRIM_HORIZON") == [0]


@pytest.mark.parametrize("kind", ["AFTER_SHARD_ID", "AT_TIMESTAMP", "FROM_TIMESTAMP"])
def test_a_filter_without_its_required_field_is_refused(resharded: Stream, kind: str):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        shown(resharded, kind)


def test_a_timestamp_in_the_future_is_refused(resharded: Stream):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        shown(resharded, "AT_TIMESTAMP", hours=3.001)


def test_the_shards_of_a_stream_that_is_made_while_a_millisecond_ends_are_at_its_trim_horizon():
    class TickingClock(ManualClock):
        def now_ms(self) -> int:
            self.advance(1)
            return super().now_ms()

    resharded = Stream("arn:aws:kinesis:us-east-1:000000000000:resharded/orders", 2, TickingClock(START))

    assert shown(resharded, "AT_TRIM_HORIZON") == [0, 1]


@pytest.fixture
def table(clock: ManualClock) -> ConsumerTable:
    return ConsumerTable(ARN, clock, delay_ms=100)


def test_a_consumer_is_creating_then_active_then_deleting_then_gone(table: ConsumerTable, clock: ManualClock):
    consumer = table.register("c")
    assert consumer.status(clock.now_ms()) == "CREATING"
    clock.advance(100)
    assert consumer.status(clock.now_ms()) == "ACTIVE"
    table.deregister(consumer)
    assert table.find(name="c").status(clock.now_ms()) == "DELETING"
    clock.advance(100)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        table.find(name="c")


def test_the_creation_time_in_the_arn_tells_consumers_of_the_same_name_apart(table: ConsumerTable, clock: ManualClock):
    first = table.register("c")
    assert first.arn == f"{ARN}/consumer/c:1700000000"
    table.deregister(first)
    clock.advance(1000)
    assert table.register("c").arn == f"{ARN}/consumer/c:1700000001"
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        table.find(arn=first.arn)


def test_a_name_can_be_used_again_when_its_consumer_is_gone(table: ConsumerTable):
    table.deregister(table.register("c"))
    with pytest.raises(ApiError, match="ResourceInUseException"):
        table.register("c")


def test_a_stream_has_at_most_twenty_consumers(table: ConsumerTable):
    for i in range(20):
        table.register(f"c{i}")
    with pytest.raises(ApiError, match="LimitExceededException"):
        table.register("one-more")


def test_a_deleting_consumer_cannot_be_deregistered_again(table: ConsumerTable):
    consumer = table.register("c")
    table.deregister(consumer)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        table.deregister(consumer)
