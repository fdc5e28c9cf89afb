"""StoredJob: the shard states that a job has stored, and the shard with its lowest watermark. What reads them: a store or a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recordpublisher.fetcher.checkpoints.restore import initial_states, shards_no_longer_listed
from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard


class PositionsReader(Protocol):
    """Where a job's stored positions are read; a state store is one."""

    async def load(self) -> Sequence[State]:
        """The snapshots of all subtasks."""
        ...

    async def close(self) -> None:
        """Release what the reading took."""
        ...


class SinkPositions:
    """Reads the positions that a sink stores with its output. The sink is never opened: that would fence off the running job."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def load(self) -> Sequence[State]:
        """The snapshots of all subtasks."""
        return await self._sink.stored_positions() or []

    async def close(self) -> None:
        """Close the sink's connection."""
        await self._sink.close()


def stores_positions(sink: type[Sink]) -> bool:
    """Whether sinks of this class store a job's positions."""
    return sink.stored_positions is not Sink.stored_positions


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The state of each listed shard by `Shard.key`, and the subtask or (ELASTIC) the worker that stored it, and when (epoch ms); no states
    without a store.

    `lost` are shards that were not read to their end and that the stream no longer lists (S5).
    """

    states: Mapping[str, ShardState]
    subtasks: Mapping[str, int]
    lost: Mapping[str, ShardState]
    workers: Mapping[str, str] = field(default_factory=dict)
    taken_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshots: Iterable[State], listed: Iterable[Shard], start: StartingPosition) -> StoredJob:
        """Read snapshots; a shard without state starts where the job would start it. Raises: StateError."""
        snapshots = list(snapshots)
        restored = merge_snapshots(snapshots)
        if start.type is PositionType.LATEST and restored.pinned_ms is not None:
            start = StartingPosition.at_timestamp(restored.pinned_ms)
        newest = sorted(snapshots, key=lambda snapshot: int(snapshot["generation"]))
        stored_by = {key: snapshot for snapshot in newest for key in snapshot["shards"]}
        subtasks = {key: int(each.get("subtask", 0)) for key, each in stored_by.items() if "worker" not in each}
        workers = {key: str(each["worker"]) for key, each in stored_by.items() if each.get("worker") is not None}
        taken = {key: int(each["takenMs"]) for key, each in stored_by.items() if each.get("takenMs") is not None}
        shards = list(listed)
        lost = shards_no_longer_listed(shards, restored, {shard.stream for shard in shards})
        lost_states = {key: restored.shards[key] for key in lost}
        return cls(initial_states(shards, restored, start), subtasks, lost_states, workers, taken)

    def lowest_shard(self) -> str | None:
        """The shard with the lowest watermark that was not read to its end: a stalled alignment waits for it."""
        known = [(state.watermark, key) for key, state in self.states.items() if not state.ended]
        lowest = min(((watermark, key) for watermark, key in known if watermark is not None), default=None)
        return None if lowest is None else lowest[1]


NOTHING_STORED = StoredJob({}, {}, {})
