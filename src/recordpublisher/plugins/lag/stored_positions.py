"""StoredJob: the shard states that a job has stored, and the shard with its lowest watermark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.restore import initial_states, shards_no_longer_listed
from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The state of each listed shard by `Shard.key`, and the subtask that stored it; no states without a store.

    `lost` are shards that were not read to their end and that the stream no longer lists (S5).
    """

    states: Mapping[str, ShardState]
    subtasks: Mapping[str, int]
    lost: Mapping[str, ShardState]

    @classmethod
    def of(cls, snapshots: Iterable[State], listed: Iterable[Shard], start: StartingPosition) -> StoredJob:
        """Read snapshots; a shard without state starts where the job would start it. Raises: StateError."""
        snapshots = list(snapshots)
        restored = merge_snapshots(snapshots)
        if start.type is PositionType.LATEST and restored.pinned_ms is not None:
            start = StartingPosition.at_timestamp(restored.pinned_ms)
        newest = sorted(snapshots, key=lambda snapshot: int(snapshot["generation"]))
        subtasks = {key: int(snapshot.get("subtask", 0)) for snapshot in newest for key in snapshot["shards"]}
        shards = list(listed)
        lost = shards_no_longer_listed(shards, restored, {shard.stream for shard in shards})
        return cls(initial_states(shards, restored, start), subtasks, {key: restored.shards[key] for key in lost})

    def lowest_shard(self) -> str | None:
        """The shard with the lowest watermark that was not read to its end: a stalled alignment waits for it."""
        known = [(state.watermark, key) for key, state in self.states.items() if not state.ended]
        lowest = min(((watermark, key) for watermark, key in known if watermark is not None), default=None)
        return None if lowest is None else lowest[1]


NOTHING_STORED = StoredJob({}, {}, {})
