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

STORE_SECONDS = 0.05


class CheckpointHistory:
    """Every stored checkpoint, with its time."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._stored: list[tuple[float, str]] = []
        self._epoch = 0

    def rewind(self, seconds: float) -> None:
        """Drop the checkpoints of the last `seconds`: the job is restored from an older one."""
        self._stored = [each for each in self._stored if each[0] <= self._simulator.now - seconds]

    def begin(self) -> int:
        """Begin the next epoch: the starts before are fenced."""
        self._epoch += 1
        return self._epoch

    def add(self, epoch: int, state: State) -> None:
        """Store a checkpoint. Raises: FencedError if there was a later start."""
        if self._epoch != epoch:
            raise FencedError(f"epoch {self._epoch} has begun")
        self._check_nothing_is_lost(epoch, state)
        self._stored.append((self._simulator.now, json.dumps(state)))

    def _check_nothing_is_lost(self, epoch: int, state: State) -> None:
        """A start goes on storing each shard that it has stored and that has not ended (S10)."""
        for before in self.snapshots():
            open_shards = {key for key, entries in before["shards"].items() if not entries.get("ended")}
            lost = open_shards - state["shards"].keys() if before["generation"] == epoch else set()
            assert not lost, f"S10: no position of {lost} is stored any more"

    def snapshots(self) -> list[dict[str, Any]]:
        """The last one, if there is one."""
        return [json.loads(text) for _, text in self._stored[-1:]]

    def counts(self, stream: SimulatedStream) -> dict[str, int]:
        """How many records of each shard a restart has behind it, computed independently."""
        found = {key: entries for snapshot in self.snapshots() for key, entries in snapshot["shards"].items()}
        return {key: _count(ShardState.from_json(entries), stream) for key, entries in found.items()}


def _count(state: ShardState, stream: SimulatedStream) -> int:
    if state.position is None:
        return 0
    size, sequence = stream.plan.aggregate, int(state.position.sequence)
    inside = sequence * size + state.position.sub_sequence + 1
    return inside if state.position.is_inside_aggregate else (sequence + 1) * size


class SimulatedAlone:
    """What one start has in the place of an `AloneWorker`."""

    counts = None

    def __init__(self, checkpoints: CheckpointHistory, process: Process) -> None:
        self._checkpoints = checkpoints
        self._process = process
        self._epoch = 0

    async def open(self) -> tuple[int, list[State]]:
        self._epoch = self._checkpoints.begin()
        return self._epoch, list(self._checkpoints.snapshots())

    async def store(self, state: State) -> None:
        await asyncio.sleep(STORE_SECONDS)
        if not self._process.is_dead:
            self._checkpoints.add(self._epoch, state)

    async def close(self) -> None:
        """Nothing was opened."""
