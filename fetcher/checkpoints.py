"""Checkpoints: snapshots kept in a state store, fenced by generation (S6)."""

from __future__ import annotations

import asyncio
from typing import Any

from .sink import State
from .state_store import StateStore


class Checkpoints:
    """Owns the generation of this start and the wish for a checkpoint."""

    def __init__(self, store: StateStore, subtask: int) -> None:
        self._store = store
        self._subtask = subtask
        self._generation = 0
        self._wanted = asyncio.Event()

    async def open(self) -> tuple[int, list[State]]:
        """Take the next generation and load what is stored. Raises: StateError."""
        self._generation = await self._store.open_generation(self._subtask)
        return self._generation, await self._store.load()

    def ask_for_one(self) -> None:
        """A shard ended: its children elsewhere wait for a confirmed checkpoint (S2)."""
        self._wanted.set()

    async def wait_until_due(self, interval_ms: int) -> None:
        """Return when the interval is over (-1: never) or somebody asked."""
        try:
            async with asyncio.timeout(None if interval_ms < 0 else interval_ms / 1000):
                await self._wanted.wait()
        except TimeoutError:
            return
        self._wanted.clear()

    async def store(self, state: dict[str, Any]) -> None:
        """Keep a snapshot. Raises: FencedError when a newer generation owns the state."""
        await self._store.store(self._subtask, self._generation, state)
