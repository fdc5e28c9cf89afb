"""Where a simulated job keeps its checkpoints: a store with a past, so that a job can go back to an older one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import FencedError

from .universe import Process, Universe
from .world import World

STORE_SECONDS = 0.05


class Shelf:
    """Every checkpoint ever stored, with its time."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._kept: list[tuple[float, int, str]] = []
        self._owners: dict[int, int] = {}
        self._generation = 0

    def rewind(self, seconds: float) -> None:
        """Forget the last `seconds`: the job goes back to an older checkpoint."""
        self._kept = [each for each in self._kept if each[0] <= self._universe.now - seconds]

    def open_generation(self, subtask: int) -> int:
        self._generation += 1
        self._owners[subtask] = self._generation
        return self._generation

    def keep(self, subtask: int, generation: int, state: State) -> None:
        if self._owners[subtask] != generation:
            raise FencedError(f"subtask {subtask} has a newer generation")
        self._kept.append((self._universe.now, subtask, json.dumps(state)))

    def snapshots(self) -> list[dict[str, Any]]:
        """The last of each subtask."""
        last = {subtask: text for _, subtask, text in self._kept}
        return [json.loads(text) for text in last.values()]

    def counts(self, world: World) -> dict[str, int]:
        """How many records of each shard a restart begins behind: the newest generation wins, then the furthest; by a way of our own."""
        found: dict[str, tuple[int, int]] = {}
        for snapshot in self.snapshots():
            for part in [snapshot, *snapshot.get("earlier", [])]:
                for key, entries in part["shards"].items():
                    rank = (part["generation"], _count(ShardState.from_json(entries), world))
                    found[key] = max(found.get(key, rank), rank)
        return {key: count for key, (_, count) in found.items()}


def _count(state: ShardState, world: World) -> int:
    if state.position is None:
        return 0
    size, sequence = world.plan.aggregate, int(state.position.sequence)
    inside = sequence * size + state.position.sub_sequence + 1
    return inside if state.position.is_inside_aggregate else (sequence + 1) * size


class ShelfStore(StateStore):
    """The store as one process sees it."""

    def __init__(self, shelf: Shelf, process: Process) -> None:
        self._shelf = shelf
        self._process = process

    async def load(self) -> list[State]:
        return list(self._shelf.snapshots())

    async def open_generation(self, subtask: int) -> int:
        return self._shelf.open_generation(subtask)

    async def store(self, subtask: int, generation: int, state: State) -> None:
        await asyncio.sleep(STORE_SECONDS)
        if not self._process.is_dead:
            self._shelf.keep(subtask, generation, state)
