"""ShardMap: which open shard takes a hash key, by the last listing (K4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.shards import HashRange, Shard

ANY_SHARD = "any shard"
"""Id of the only queue, without aggregation, of a stream with AUTO record distribution: keys do not decide the shard (S4)."""


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The open shards, sorted by the start of their hash ranges.

    `open_count`: the number of open shards, also where keys do not decide; `ranges`: of every listed shard, closed ones included;
    `keys_decide`: whether a record's shard is known before it is put.
    """

    shards: tuple[Shard, ...]
    starts: tuple[int, ...]
    open_count: int
    ranges: dict[str, HashRange]
    keys_decide: bool = True

    @classmethod
    def of(cls, listed: Iterable[Shard], distributes_by_key: bool = True, keeps_ranges: bool = False) -> ShardMap:
        """The map of a listing; closed shards take no records. Raises: ImpossibleStateError without an open shard.

        `keeps_ranges`: aggregates have records of one shard's range also where keys do not decide. The stream can be switched back at any
        time, and then a reader drops what lies outside the range.
        """
        listed = tuple(listed)
        shards = tuple(sorted((shard for shard in listed if not shard.closed), key=lambda one: one.hash_range.start))
        if not shards:
            raise ImpossibleStateError("a stream was listed without any open shard")
        count = len(shards)
        if not distributes_by_key and not keeps_ranges:
            shards = (Shard(shards[0].stream, ANY_SHARD, hash_range=HashRange()),)
        ranges = {shard.shard_id: shard.hash_range for shard in listed}
        return cls(shards, tuple(shard.hash_range.start for shard in shards), count, ranges, distributes_by_key)

    def shard_of(self, hash_key: int) -> Shard:
        """The shard that takes a hash key."""
        return self.shards[max(bisect_right(self.starts, hash_key) - 1, 0)]


NO_SHARDS = ShardMap((), (), 0, {})
"""Before the shards are listed."""
