"""ShardMap: which open shard takes a hash key, by the last listing (K4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.shards import HashRange, Shard

ANY_SHARD = "any shard"
"""Id of the only queue of a stream with AUTO record distribution, where keys do not decide the shard (S4)."""


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The open shards, sorted by the start of their hash ranges.

    `open_count`: the number of open shards, also where keys do not decide; `ranges`: of every listed shard, closed ones included.
    """

    shards: tuple[Shard, ...]
    starts: tuple[int, ...]
    open_count: int
    ranges: dict[str, HashRange]

    @classmethod
    def of(cls, listed: Iterable[Shard], distributes_by_key: bool = True) -> ShardMap:
        """The map of a listing; closed shards take no records. Raises: ImpossibleStateError without an open shard."""
        listed = tuple(listed)
        shards = tuple(sorted((shard for shard in listed if not shard.closed), key=lambda one: one.hash_range.start))
        if not shards:
            raise ImpossibleStateError("a stream was listed without any open shard")
        count = len(shards)
        if not distributes_by_key:
            shards = (Shard(shards[0].stream, ANY_SHARD, hash_range=HashRange()),)
        ranges = {shard.shard_id: shard.hash_range for shard in listed}
        return cls(shards, tuple(shard.hash_range.start for shard in shards), count, ranges)

    def shard_of(self, hash_key: int) -> Shard:
        """The shard that takes a hash key."""
        return self.shards[max(bisect_right(self.starts, hash_key) - 1, 0)]
