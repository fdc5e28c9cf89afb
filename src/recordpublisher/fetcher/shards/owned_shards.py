"""OwnedShards adds the new shards that this process reads, and removes those that are gone (S3, S5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, stream_of

from .discovery import ShardDiscovery
from .missing_shards import MissingShards
from .shard_state import ShardState
from .shard_table import ShardTable


class OwnedShards:
    """Owns what is known of shards that this subtask does not read now.

    These are shards that a listing lacks, and shards of streams that left the list of streams.
    """

    def __init__(
        self,
        table: ShardTable,
        discovery: ShardDiscovery,
        missing: MissingShards,
        is_ours: Callable[[Shard], bool],
        clock: Clock,
    ) -> None:
        self._table = table
        self._discovery = discovery
        self._missing = missing
        self._unlisted_states: dict[str, ShardState] = {}
        """The restored states of shards that the first listing lacked."""
        self._kept_states: dict[str, ShardState] = {}
        """The states of own shards whose stream is no longer read (S10)."""
        self._is_ours = is_ours
        self._clock = clock

    @property
    def kept_states(self) -> dict[str, ShardState]:
        """The states of shards that are not read now, which all snapshots contain: they may be read later (S5, S10)."""
        unlisted = self._unlisted_states.items()
        return {**{key: state for key, state in unlisted if not self._missing.is_expired(key)}, **self._kept_states}

    def add_initial(
        self, listed: Iterable[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a first listing, each with its state. `unlisted` are restored states of shards that the listing lacks.

        If such a shard's stream is not read, its state is used when the stream comes into the list.
        """
        self._unlisted_states |= unlisted
        opened = self._discovery.opened
        self._table.mark_finished(key for key, state in unlisted.items() if state.ended and stream_of(key) in opened)
        shards = self._table.add_listed(listed)
        self._table.mark_finished(shard.key for shard in shards if states[shard.key].ended and not self._is_ours(shard))
        for stream in {shard.stream for shard in shards}:
            self._table.update_listing(stream, [shard for shard in shards if shard.stream == stream])
        for shard in shards:
            self._add_if_ours(shard, states[shard.key])

    def add_new(self, shards: Iterable[Shard]) -> None:
        """Add shards that were found later. They are read from TRIM_HORIZON (S3), unless they have restored state."""
        fresh = ShardState(StartingPosition.trim_horizon())
        for shard in self._table.add_listed(shards):
            self._add_if_ours(shard, self._unlisted_states.pop(shard.key, fresh))

    def known_states(self, stream: str) -> dict[str, ShardState]:
        """Return the known states of a stream that is not read, by `Shard.key`."""
        known = {**self._unlisted_states, **self._kept_states}
        return {key: state for key, state in known.items() if stream_of(key) == stream}

    def add_stream(
        self, listed: Sequence[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Add the shards of a stream that was not read, as `add_initial` does."""
        gone = {shard.key for shard in listed} | {key for key in unlisted if self._missing.is_expired(key)}
        self._kept_states = {key: state for key, state in self._kept_states.items() if key not in gone}
        self.add_initial(listed, states, unlisted)

    def remove_stream(self, stream: str) -> None:
        """Remove every shard of a stream that is no longer read. Keep the states of own shards, unless the stream was deleted."""
        states = self._table.remove_stream(stream)
        if stream not in self._discovery.deleted:
            self._kept_states |= states
            return
        self._discovery.deleted.discard(stream)
        self._table.forget_finished(stream)
        for key in self.known_states(stream):
            self._unlisted_states.pop(key, None)
            self._kept_states.pop(key, None)

    async def apply_listing(self, stream: str, listed: list[Shard]) -> None:
        """Apply a complete listing of a stream: add new shards, remove expired ones (S5)."""
        self.add_new(listed)
        await self._missing.check(self._table.update_listing(stream, listed), (stream,))
        for key in self._table.removable():
            self._table.remove(key)

    def _add_if_ours(self, shard: Shard, state: ShardState) -> None:
        if shard.key not in self._table and self._is_ours(shard):
            self._table.add(shard, state, owned_since_ms=self._clock.now_ms())
