"""Random puts, splits, merges and changes of the shard count: no record is lost, repeated or out of order."""

from base64 import b64decode
from itertools import pairwise

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recordpublisher.local import ManualClock
from recordpublisher.local.streams.resharding import merge, split, update_shard_count
from recordpublisher.local.streams.shard import HASH_KEYS, Shard
from recordpublisher.local.streams.stream import Stream


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
