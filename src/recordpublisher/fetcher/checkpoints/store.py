"""SubtaskCheckpoints: stores snapshots, fenced by generation (S6). CheckpointScheduler: when one is taken. StateStore: the port."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ..sink import State

MIN_PAUSE_SECONDS = 0.1
"""Between a checkpoint and the next requested one: without it a thousand shards that end together would cause a thousand snapshots of a
thousand shards each."""


class SubtaskCheckpoints:
    """The checkpoints of one subtask. Owns the generation of this start."""

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
        """Store a snapshot. Raises: FencedError when a newer generation owns the state."""
        await self._store.store(self._subtask, self._generation, state)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class CheckpointScheduler:
    """Takes a checkpoint after each interval (ms; -1: never) and on request. Requests soon after a checkpoint share the next one.

    It is stopped and never cancelled, so that a flush or store is never cut off.
    """

    def __init__(self, interval_ms: int, take: Callable[[], Awaitable[object]]) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
        self._take = take
        self._requested = asyncio.Event()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Prepare for a run."""
        self._stopping.clear()

    def request(self) -> None:
        """Request a checkpoint soon: for the children of an ended shard in other subtasks, which wait for it (S2), or for a sink."""
        self._requested.set()

    def stop(self) -> None:
        """Return from `run` after the current checkpoint."""
        self._stopping.set()
        self._requested.set()

    async def run(self) -> None:
        """Take checkpoints until stopped. Raises: FencedError, SinkError, StateError."""
        earliest = 0.0
        while not self._stopping.is_set():
            if await _wait_for(self._requested, self._seconds):
                await _wait_for(self._stopping, earliest - asyncio.get_running_loop().time())
            self._requested.clear()
            if not self._stopping.is_set():
                await self._take()
                earliest = asyncio.get_running_loop().time() + MIN_PAUSE_SECONDS


async def _wait_for(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, for at most this time (None: without limit). Returns whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class StateStore(ABC):
    """Stores one snapshot for each subtask of a job. Built as `StateStore(properties)`."""

    @abstractmethod
    async def load(self) -> list[State]:
        """Every stored snapshot of the job; an empty list at the first start. Raises: StateError when one is unreadable."""

    @abstractmethod
    async def open_generation(self, subtask: int) -> int:
        """Take a generation higher than any before. From then on, `store` by an earlier start of this subtask raises FencedError."""

    @abstractmethod
    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Store a snapshot if `generation` is still the subtask's newest. Raises: FencedError when it is not."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. Called once, when the job closes."""
