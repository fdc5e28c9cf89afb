"""Knows which open shard takes a hash key (`ShardMap`), keeps one queue for each shard, and chooses the queue of a record (K4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.shards import HashRange, Shard

from ..adaptive_rate import ShardRateLimit
from ..pending_record import PendingRecord
from .kpl_aggregator import KplAggregator, split_aggregate
from .shard_queue import AggregatingShardQueue, ShardQueue

ANY_SHARD = "any shard"
"""Id of the only queue that a stream with AUTO record distribution has without aggregation, because keys do not decide the shard (S4)."""


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The open shards, sorted by the start of their hash ranges.

    - `open_count`: the number of open shards, even if keys do not decide the shard.
    - `ranges`: the hash range of every listed shard, including closed shards.
    - `keys_decide`: whether a record's shard is known before it is put.
    """

    shards: tuple[Shard, ...]
    starts: tuple[int, ...]
    open_count: int
    ranges: dict[str, HashRange]
    keys_decide: bool = True

    @classmethod
    def of(cls, listed: Iterable[Shard], distributes_by_key: bool = True, keeps_ranges: bool = False) -> ShardMap:
        """Return the map of a listing. Closed shards take no records.

        - `keeps_ranges`: whether each aggregate has only records of one shard's range, even if keys do not decide the shard. The stream can
          be switched back at any time, and then readers drop records outside the range.

        Raises: ImpossibleStateError if the listing has no open shard.
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
        """Return the shard that takes a hash key."""
        return self.shards[max(bisect_right(self.starts, hash_key) - 1, 0)]


NO_SHARDS = ShardMap((), (), 0, {})
"""The map before the shards are listed."""


_MAX_CACHED_KEYS = 65_536
"""Number of keys whose queue is cached. Hashing a key costs more than everything else that is done for a record."""


class ShardQueues:
    """Owns the queues and the current shard map."""

    def __init__(self, shard_map: ShardMap, rate_limit: ShardRateLimit, aggregator: KplAggregator | None) -> None:
        self._rate_limit = rate_limit
        self._aggregator = aggregator
        self._queues: dict[str, ShardQueue] = {}
        self._by_key: dict[str, ShardQueue] = {}
        self.update(shard_map, 0.0)

    def __iter__(self) -> Iterator[ShardQueue]:
        return iter(self._queues.values())

    def __contains__(self, queue: ShardQueue) -> bool:
        return self._queues.get(queue.shard.shard_id) is queue

    def update(self, shard_map: ShardMap, now: float) -> None:
        """Apply a newer shard map. Records that are queued for a closed shard move to its children, in order."""
        self.map = shard_map
        before, self._queues = self._queues, {}
        self._by_key.clear()
        for shard in shard_map.shards:
            queue = before.pop(shard.shard_id) if shard.shard_id in before else self._new_queue(shard)
            queue.rate_limit = self._rate_limit_of(shard)
            queue.known_shards = None if shard_map.keys_decide else shard_map.ranges
            self._queues[shard.shard_id] = queue
        for closed in before.values():
            self.requeue([part for record in closed.drain() for part in split_aggregate(record)], now)

    def requeue(self, records: Iterable[PendingRecord], now: float) -> None:
        """Queue records that have waited before. They are sent in the next calls."""
        for record in records:
            queue = self.queue_for(record)
            queue.add(record, now)
            queue.mark_due()

    def queue_for(self, record: PendingRecord) -> ShardQueue:
        """Return the queue of the shard that takes this record, by the current map."""
        if record.explicit_hash_key is not None:
            return self._queues[self.map.shard_of(record.hash_key).shard_id]
        key = record.partition_key
        queue = self._by_key.get(key)
        if queue is None:
            queue = self._queues[self.map.shard_of(record.hash_key).shard_id]
            if len(self._by_key) >= _MAX_CACHED_KEYS:
                self._by_key.clear()
            self._by_key[key] = queue
        return queue

    def by_queue(self, records: Sequence[PendingRecord]) -> Iterable[tuple[ShardQueue, Sequence[PendingRecord]]]:
        """Return the records that each queue gets, in order."""
        if len(self._queues) == 1:
            return [(next(iter(self)), records)]
        found: dict[ShardQueue, list[PendingRecord]] = {}
        for record in records:
            found.setdefault(self.queue_for(record), []).append(record)
        return found.items()

    def mark_all_due(self) -> None:
        """Let all queued records be sent in the next calls."""
        for queue in self:
            queue.mark_due()

    def _new_queue(self, shard: Shard) -> ShardQueue:
        rate_limit = self._rate_limit_of(shard)
        if self._aggregator is None:
            return ShardQueue(shard, rate_limit)
        return AggregatingShardQueue(shard, rate_limit, self._aggregator)

    def _rate_limit_of(self, shard: Shard) -> ShardRateLimit:
        # ANY_SHARD represents all open shards of the stream, so it gets the sum of their limits.
        shards = self.map.open_count if shard.shard_id == ANY_SHARD else 1
        limit = self._rate_limit
        records, size = limit.records_per_second * shards, limit.bytes_per_second * shards
        return replace(limit, records_per_second=records, bytes_per_second=size)
