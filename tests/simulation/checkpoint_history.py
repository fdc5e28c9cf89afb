"""CheckpointHistory: every checkpoint of a simulated job, so that it can be restored from an older one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import FencedError

from .simulated_stream import SimulatedStream
from .simulator import Process, Simulator
from fakes.snapshots import Snapshots

STORE_SECONDS = 0.05


class CheckpointHistory:
    """Every stored checkpoint, with its time."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._stored: list[tuple[float, int, str]] = []
        self._owners: dict[int, int] = {}
        self._generation = 0

    def rewind(self, seconds: float) -> None:
        """Drop the checkpoints of the last `seconds`: the job is restored from an older one."""
        self._stored = [each for each in self._stored if each[0] <= self._simulator.now - seconds]

    def open_generation(self, subtask: int) -> int:
        self._generation += 1
        self._owners[subtask] = self._generation
        return self._generation

    def add(self, subtask: int, generation: int, state: State) -> None:
        if self._owners[subtask] != generation:
            raise FencedError(f"subtask {subtask} has a newer generation")
        self._check_nothing_is_lost(subtask, generation, state)
        self._stored.append((self._simulator.now, subtask, json.dumps(state)))

    def _check_nothing_is_lost(self, subtask: int, generation: int, state: State) -> None:
        """A start of a subtask goes on storing each shard that it has stored and that has not ended (S10)."""
        earlier = [json.loads(text) for _, each, text in reversed(self._stored) if each == subtask][:1]
        for before in earlier:
            open_shards = {key for key, entries in before["shards"].items() if not entries.get("ended")}
            lost = open_shards - state["shards"].keys() if before["generation"] == generation else set()
            assert not lost, f"S10: subtask {subtask} stores no position of {lost} any more"

    def snapshots(self) -> list[dict[str, Any]]:
        """The last one of each subtask."""
        last = {subtask: text for _, subtask, text in self._stored}
        return [json.loads(text) for text in last.values()]

    def counts(self, stream: SimulatedStream) -> dict[str, int]:
        """How many records of each shard a restart has behind it: by the newest generation, then the highest; computed independently."""
        found: dict[str, tuple[int, int]] = {}
        for snapshot in self.snapshots():
            for part in [snapshot, *snapshot.get("statesForOthers", [])]:
                for key, entries in part["shards"].items():
                    rank = (part["generation"], _count(ShardState.from_json(entries), stream))
                    found[key] = max(found.get(key, rank), rank)
        return {key: count for key, (_, count) in found.items()}


def _count(state: ShardState, stream: SimulatedStream) -> int:
    if state.position is None:
        return 0
    size, sequence = stream.plan.aggregate, int(state.position.sequence)
    inside = sequence * size + state.position.sub_sequence + 1
    return inside if state.position.is_inside_aggregate else (sequence + 1) * size


class SimulatedStateStore(Snapshots):
    """What one process has stored."""

    def __init__(self, checkpoints: CheckpointHistory, process: Process) -> None:
        self._checkpoints = checkpoints
        self._process = process

    async def load(self) -> list[State]:
        return list(self._checkpoints.snapshots())

    async def open_generation(self, subtask: int) -> int:
        return self._checkpoints.open_generation(subtask)

    async def store(self, subtask: int, generation: int, state: State) -> None:
        await asyncio.sleep(STORE_SECONDS)
        if not self._process.is_dead:
            self._checkpoints.add(subtask, generation, state)
