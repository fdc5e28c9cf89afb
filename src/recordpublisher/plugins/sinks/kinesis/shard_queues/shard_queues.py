"""The lanes of one stream: one for each open shard, and the way from a record to its lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recordpublisher.publishers.shards import Shard

from ..pending_record import PendingRecord
from ..rate_control import MAX_WINDOW, ShardRateLimit
from .kpl_aggregator import KplAggregator, split_aggregate
from .shard_map import ANY_SHARD, ShardMap
from .shard_queue import AggregatingShardQueue, ShardQueue

_REMEMBERED_KEYS = 65_536
"""Hashing a key costs more than everything else that is done for a record; so many lanes of keys are remembered."""


class ShardQueues:
    """Owns the lanes and the shard map that they follow."""

    def __init__(self, shard_map: ShardMap, pace: ShardRateLimit, aggregation: KplAggregator | None) -> None:
        self._pace = pace
        self._aggregation = aggregation
        self._lanes: dict[str, ShardQueue] = {}
        self._of_key: dict[str, ShardQueue] = {}
        self.adopt(shard_map, 0.0)

    def __iter__(self) -> Iterator[ShardQueue]:
        return iter(self._lanes.values())

    def __contains__(self, lane: ShardQueue) -> bool:
        return self._lanes.get(lane.shard.shard_id) is lane

    def adopt(self, shard_map: ShardMap, now: float) -> None:
        """Follow a newer listing: what waited for shards that are closed now goes to their children, in its order."""
        self.map = shard_map
        before, self._lanes = self._lanes, {}
        self._of_key.clear()
        for shard in shard_map.shards:
            lane = before.pop(shard.shard_id) if shard.shard_id in before else self._lane(shard)
            lane.pace = self._pace_of(shard)
            self._lanes[shard.shard_id] = lane
        for closed in before.values():
            self.spread([part for outgoing in closed.drained() for part in split_aggregate(outgoing)], now)

    def spread(self, records: Iterable[PendingRecord], now: float) -> None:
        """Records that have waited once already go to their lanes, and from there with the next calls."""
        for outgoing in records:
            lane = self.of(outgoing)
            lane.add(outgoing, now)
            lane.hurry()

    def of(self, outgoing: PendingRecord) -> ShardQueue:
        """The lane of the shard that will take this record, as far as is known."""
        if outgoing.explicit_hash_key is not None:
            return self._lanes[self.map.shard_of(outgoing.hash_key).shard_id]
        key = outgoing.partition_key
        lane = self._of_key.get(key)
        if lane is None:
            lane = self._lanes[self.map.shard_of(outgoing.hash_key).shard_id]
            if len(self._of_key) >= _REMEMBERED_KEYS:
                self._of_key.clear()
            self._of_key[key] = lane
        return lane

    def hurry(self) -> None:
        """What waits goes with the next calls."""
        for lane in self:
            lane.hurry()

    def _lane(self, shard: Shard) -> ShardQueue:
        pace = self._pace_of(shard)
        return (
            ShardQueue(shard, pace)
            if self._aggregation is None
            else AggregatingShardQueue(shard, pace, self._aggregation)
        )

    def _pace_of(self, shard: Shard) -> ShardRateLimit:
        shards = self.map.open_count if shard.shard_id == ANY_SHARD else 1
        pace = self._pace
        first = min(MAX_WINDOW, pace.initial_window * shards)
        return ShardRateLimit(pace.records_per_second * shards, pace.bytes_per_second * shards, first)
