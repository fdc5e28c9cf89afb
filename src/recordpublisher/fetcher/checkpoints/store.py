"""SubtaskCheckpoints: snapshots kept in a state store, fenced by generation (S6), and when one is due."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ..sink import State

REST_SECONDS = 0.1
"""Between a checkpoint and the next one that is asked for: a thousand shards that end together would else be a thousand snapshots of a
thousand shards each."""


class SubtaskCheckpoints:
    """Owns the generation of this start."""

    def __init__(self, store: StateStore, subtask: int) -> None:
        self._store = store
        self._subtask = subtask
        self._generation = 0

    async def open(self) -> tuple[int, list[State]]:
        """Take the next generation and load what is stored. Raises: StateError."""
        self._generation = await self._store.open_generation(self._subtask)
        return self._generation, await self._store.load()

    async def load(self) -> list[State]:
        """What every subtask of the job has stored. Raises: StateError."""
        return await self._store.load()

    async def store(self, state: dict[str, Any]) -> None:
        """Keep a snapshot. Raises: FencedError when a newer generation owns the state."""
        await self._store.store(self._subtask, self._generation, state)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class CheckpointScheduler:
    """Takes a checkpoint whenever the interval (ms; -1: never) is over or somebody asks; those who ask soon after one share the next.

    Told to stop and never cancelled, so that a flush or store is never cut off.
    """

    def __init__(self, interval_ms: int, take: Callable[[], Awaitable[object]]) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
        self._take = take
        self._wanted = asyncio.Event()
        self._stopping = asyncio.Event()

    def begin(self) -> None:
        """Get ready for a run."""
        self._stopping.clear()

    def ask_for_one(self) -> None:
        """A shard ended: its children elsewhere wait for a confirmed checkpoint (S2)."""
        self._wanted.set()

    def stop(self) -> None:
        """Return after the checkpoint that is going on."""
        self._stopping.set()
        self._wanted.set()

    async def run(self) -> None:
        """Take checkpoints until stopped. Raises: FencedError, SinkError, StateError."""
        rested_at = 0.0
        while not self._stopping.is_set():
            if await _happens(self._wanted, self._seconds):
                await _happens(self._stopping, rested_at - asyncio.get_running_loop().time())
            self._wanted.clear()
            if not self._stopping.is_set():
                await self._take()
                rested_at = asyncio.get_running_loop().time() + REST_SECONDS


async def _happens(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it does within so many seconds (None: wait for it)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class StateStore(ABC):
    """Keeps one snapshot for each subtask of a job. Built as `StateStore(properties)`."""

    @abstractmethod
    async def load(self) -> list[State]:
        """Every stored snapshot of the job; an empty list on the first start. Raises: StateError when one is unreadable."""

    @abstractmethod
    async def open_generation(self, subtask: int) -> int:
        """Take a generation higher than any before: later stores of this subtask's earlier starts raise FencedError."""

    @abstractmethod
    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Keep a snapshot if `generation` is still the subtask's newest. Raises: FencedError when it is not."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. Called once, when the job closes."""
