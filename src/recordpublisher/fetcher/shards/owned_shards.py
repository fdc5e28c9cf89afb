"""OwnedShards: which shards this subtask owns, from the first to the last it hears of them (S3, S5, S9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from .discovery import ShardDiscovery
from .shard_state import ShardState
from .shard_table import ShardEntry, ShardStage, ShardTable


class OwnedShards:
    """Takes shards into the table and out of it; tells `changed` and `forgotten` of each."""

    def __init__(
        self,
        table: ShardTable,
        discovery: ShardDiscovery,
        is_ours: Callable[[Shard], bool],
        clock: Clock,
        changed: Callable[[ShardEntry], None],
        forgotten: Callable[[str], None],
    ) -> None:
        self._table = table
        self._discovery = discovery
        self._is_ours = is_ours
        self._clock = clock
        self._changed = changed
        self._forgotten = forgotten

    def open(self, listed: Iterable[Shard], states: Mapping[str, ShardState]) -> None:
        """The shards of a start, each with its state."""
        shards = self._table.learn(listed)
        for stream in {shard.stream for shard in shards}:
            self._table.expired(stream, [shard for shard in shards if shard.stream == stream])
        for shard in shards:
            self._own(shard, states[shard.key])

    def take(self, shards: Iterable[Shard]) -> None:
        """Shards found later are read from TRIM_HORIZON (S3)."""
        for shard in self._table.learn(shards):
            self._own(shard, ShardState(StartingPosition.trim_horizon()))

    def look(self, stream: str, listed: list[Shard]) -> None:
        """What a whole listing of a stream says: new shards are taken, expired ones forgotten (S5)."""
        self.take(listed)
        for key in self._table.expired(stream, listed):
            self.forget(key)

    def stream_was_deleted(self, entry: ShardEntry) -> None:
        """Emit what was read of a shard that is gone with its stream, then forget it: nobody shall wait for it."""
        self._discovery.deleted.add(entry.shard.stream)
        entry.stage = ShardStage.DRAINING
        if entry.queue:
            self._changed(entry)
        else:
            self.forget(entry.key)

    def is_deleted(self, entry: ShardEntry) -> bool:
        """Whether the shard's stream does not exist any more."""
        return entry.shard.stream in self._discovery.deleted

    def forget(self, key: str) -> None:
        """Drop a shard: state cannot grow for ever."""
        self._table.forget(key)
        self._forgotten(key)

    def _own(self, shard: Shard, state: ShardState) -> None:
        if shard.key not in self._table and self._is_ours(shard):
            entry = self._table.add(shard, state)
            entry.owned_since_ms = self._clock.now_ms()
            self._changed(entry)
