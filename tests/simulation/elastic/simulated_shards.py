"""The shards of a simulated stream: how many records each has, and which were split or merged into which."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recordpublisher.publishers.shards import Shard

STREAM = "t"
STEP_MS = 3
LACKING_SECONDS = 8.0
LOADS = (0.0, 0.0, 3_000.0, 10_000.0, 100_000.0)
"""Bytes a second."""


@dataclass
class SimulatedShard:
    """`first_ms`: the event time of its first record; each record is `STEP_MS` later than the one before."""

    key: str
    records: int
    parents: tuple[str, ...] = ()
    first_ms: int = 0
    children: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_expired: bool = False
    """Whether it is past retention: what was not committed of it then is lost."""
    oldest: int = 0
    """The oldest record that is not past retention."""
    bytes_per_second: float = 0.0
    """Its traffic, whatever of it is left to read."""

    def as_listed(self) -> Shard:
        """As ListShards shows it."""
        shard_id = self.key.rpartition("/")[2]
        parents = tuple(parent.rpartition("/")[2] for parent in self.parents)
        return Shard(STREAM, shard_id, parents, closed=bool(self.children))

    def watermark(self, position: int) -> int:
        """Of the next record at this position."""
        return self.first_ms + STEP_MS * position


class SimulatedShards:
    """Owns the shards. A shard ends when it has children."""

    def __init__(self, draw: random.Random, roots: int, records: int, loads: Sequence[float] = LOADS) -> None:
        self._random = draw
        self._traffic = random.Random(f"{roots} {records} traffic")
        self._numbers = 0
        self._records = records
        self._number_of_roots = roots
        self._now_ms = 0
        """The event time at which the stream was deleted."""
        self.long_listed = 0
        """How many of the oldest shards are in each listing: a listing may lack newer ones."""
        self._loads = loads
        self.by_key: dict[str, SimulatedShard] = {}
        self.former: dict[str, SimulatedShard] = {}
        """The shards of the stream that was deleted, where the present one has none of that key."""
        self.roots = tuple(self._add((), 0).key for _ in range(roots))

    def delete(self) -> None:
        """The stream is deleted, with its shards."""
        self._now_ms = max(shard.watermark(shard.records) for shard in self.by_key.values())
        self.former, self.by_key, self.long_listed = self.by_key, {}, 0

    def make_again(self) -> None:
        """A stream of the same name: its shards have the ids of the former ones."""
        self._numbers = 0
        self.roots = tuple(self._add((), self._now_ms).key for _ in range(self._number_of_roots))

    def described(self, key: str) -> SimulatedShard:
        """The shard, as whoever begins to read it now finds it."""
        return self.by_key.get(key) or self.former[key]

    def reshard(self) -> bool:
        """Split a shard, or merge two. Returns whether there was one to reshard."""
        open_shards = [shard for shard in self.by_key.values() if not shard.children]
        if not open_shards or len(self.by_key) >= 14:
            return False
        self._end(self._random.sample(open_shards, min(len(open_shards), self._random.choice([1, 1, 2]))))
        return True

    def split(self, share: float) -> None:
        """Split one of the open shards, the oldest of which has a share of 0."""
        open_shards = [shard for shard in self.by_key.values() if not shard.children]
        self._end([open_shards[int(share * len(open_shards))]])

    def _end(self, chosen: Sequence[SimulatedShard]) -> None:
        first_ms = max(
            shard.watermark(shard.records) for shard in self.by_key.values()
        )  # of now, also if the stream was idle
        parents = tuple(shard.key for shard in chosen)
        children = {self._add(parents, first_ms).key: parents for _ in range(2 if len(chosen) == 1 else 1)}
        for shard in chosen:
            shard.children = children

    def expire(self, committed: Mapping[str, int]) -> None:
        """Every closed shard is past retention, and half of the records of each open one."""
        self.long_listed = len(self.by_key)
        for key, shard in self.by_key.items():
            if shard.children:
                shard.is_expired, shard.records = True, committed[key]
            else:
                shard.oldest = shard.records // 2

    def lacking(self, now: float) -> set[str]:
        """The shards that listings lack for some seconds: all children of one shard, or the merged child of two."""
        draw = random.Random(f"{self.roots} {self._records} {int(now / LACKING_SECONDS)}")
        generations = sorted({shard.parents for shard in self.by_key.values() if shard.parents})
        if not generations or draw.random() < 0.5:
            return set()
        parents = draw.choice(generations)
        return {key for key, shard in self.by_key.items() if shard.parents == parents}

    def change_traffic(self) -> None:
        """Another load of one shard that is open."""
        open_shards = [shard for shard in self.by_key.values() if not shard.children]
        self._traffic.choice(open_shards).bytes_per_second = self._traffic.choice(self._loads)

    def _add(self, parents: tuple[str, ...], first_ms: int) -> SimulatedShard:
        key = f"{STREAM}/shardId-{self._numbers:012d}"
        self._numbers += 1
        shard = SimulatedShard(key, self._random.randint(self._records // 2, self._records * 2), parents, first_ms)
        shard.bytes_per_second = self._traffic.choice(self._loads)
        self.by_key[key] = shard
        return shard
