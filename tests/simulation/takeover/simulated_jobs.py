"""The processes of a job that goes over: SimulatedSubtask of a fixed number, and ElasticJob of a group. Each takes over when it begins."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from recordpublisher.fetcher.checkpoints.snapshot import (
    merge_snapshots,
    snapshot_to_json,
    states_for_other_subtasks,
)
from recordpublisher.fetcher.leases.documents.table_cache import GroupClosedError
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.fetcher.takeover.to_group import take_over_subtasks
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from ..elastic.group_schedule import GroupSchedule
from ..elastic.shared_store import SharedStore, StoreClient
from ..elastic.simulated_process import SimulatedProcess
from ..elastic.simulated_shards import SimulatedShards
from ..simulator import Clock, Simulator
from .takeover_checker import TakeoverChecker

REFUSALS = ("sends heartbeats", "again and again", "start once with `--takeover`")
FIRST = StartingPosition.trim_horizon()


class TimedClient(StoreClient):
    """Gives up after a while, as the clients of real stores do."""

    timeout = 5.0

    async def request(self, operation: Any, written: str = "") -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                return await super().request(operation, written)
        except TimeoutError as error:
            raise StoreUnavailableError("no answer") from error


def is_refusal(error: StateError) -> bool:
    """Whether the process is told to give way; anything else is a defect."""
    return isinstance(error, GroupClosedError) or any(words in str(error) for words in REFUSALS)


class ElasticJob(SimulatedProcess):
    """A process of a group that may take over."""

    def __init__(self, name: str, simulator: Simulator, store: SharedStore, *more: Any) -> None:
        super().__init__(name, simulator, store, None, *more)
        client = TimedClient(simulator, self.process, store, self._schedule.faults, self._random)
        client.suspend = self.client.suspend
        self.client = client

    async def _run(self) -> None:
        try:
            await self._take_over()
            await super()._run()
        except StateError as error:
            if not is_refusal(error):
                raise
        self.has_left = True

    async def _take_over(self) -> None:
        while True:
            try:
                await take_over_subtasks(self.client, FIRST)
            except StoreUnavailableError:
                await asyncio.sleep(self._random.random())
            else:
                return


class SimulatedSubtask:
    """Owns the loop of one subtask's process, and how far it has read. It stores its state before the first read."""

    def __init__(
        self,
        name: str,
        simulator: Simulator,
        store: SharedStore,
        shards: SimulatedShards,
        checker: TakeoverChecker,
        schedule: GroupSchedule,
        subtask: int,
        parallelism: int,
    ) -> None:
        self.name = name
        self.has_left = self.is_leaving = False
        self.process = simulator.process()
        self._shards = shards
        self._checker = checker
        self._subtask, self._parallelism = subtask, parallelism
        self._random = random.Random(f"{schedule.seed} {name}")
        self.client = TimedClient(simulator, self.process, store, schedule.faults, self._random)
        self.client.suspend = lambda: self.process.suspend(self._random.choice([3, 30]) * self._random.random())
        self._simulator = simulator
        self._store = ConditionalStateStore(self.client, LeaseSettings(), Clock(simulator))
        self._positions: dict[str, int] = {}
        self._others: list[State] = []
        self.process.spawn(self._run())

    @property
    def is_live(self) -> bool:
        return not self.process.is_dead and not self.has_left and not self.is_leaving

    def suspend(self, seconds: float) -> None:
        self.process.suspend(seconds)

    def cut_off(self, seconds: float) -> None:
        self.client.is_cut_off = True
        self._simulator.after(seconds, lambda: setattr(self.client, "is_cut_off", False))

    def leave(self) -> None:
        self.is_leaving = True

    async def _run(self) -> None:
        try:
            generation = await self._open()
            await self._store_state(generation)
            while not self.is_leaving:
                for _ in range(self._random.randint(1, 8)):
                    await self._write()
                await self._store_state(generation)
            await self._store_state(generation)
        except FencedError:
            self._checker.counts["fenced"] += 1
        except StateError as error:
            if not is_refusal(error):
                raise
            self._checker.counts["refused"] += 1
        self.has_left = True

    async def _open(self) -> int:
        while True:
            try:
                generation = await self._store.open_generation(self._subtask)
                snapshots = await self._store.load()
            except StoreUnavailableError:
                await asyncio.sleep(self._random.random())
            else:
                break
        restored = merge_snapshots(snapshots).shards
        keys = sorted(self._shards.by_key)
        ours = set(keys[self._subtask :: self._parallelism])
        for key in ours:
            state = restored.get(key)
            self._positions[key] = 0 if state is None or state.position is None else int(state.position.sequence)
        self._others = states_for_other_subtasks(snapshots, self._subtask, set(keys) - ours)
        return generation

    async def _store_state(self, generation: int) -> None:
        states = {
            key: ShardState(FIRST, SequenceNumber(str(position)) if position else None)
            for key, position in self._positions.items()
        }
        state = snapshot_to_json(states, None, generation, self._subtask, self._parallelism, self._others)
        while True:
            try:
                await self._store.store(self._subtask, generation, state)
            except StoreUnavailableError:
                await asyncio.sleep(self._random.random())
            else:
                return

    async def _write(self) -> None:
        await asyncio.sleep(self._random.uniform(0.1, 0.7))
        unread = [key for key, position in self._positions.items() if position < self._shards.by_key[key].records]
        if unread:
            key = self._random.choice(unread)
            position = self._positions[key]
            count = min(self._random.randint(1, 6), self._shards.by_key[key].records - position)
            self._checker.on_write(self.name, key, position, count, 0, False)
            self._positions[key] += count
