"""Back-pressure: how much of a lane the query has not read yet, and when there is room for more."""

from __future__ import annotations

import asyncio
import logging

from recordpublisher.plugins.stores.ports import ObjectStore

from .history import AT_ONCE, read_steps
from .names import READ, Place, manifests_of, place_of
from .offset import SpoolOffset

LOG = logging.getLogger("recordpublisher.spark")
LOOK_SECONDS = 0.2
MOST_STEPS = 5_000
"""So many manifests of a lane may wait, however small: a query that is away for days would have to list them all."""


async def read_so_far(store: ObjectStore) -> SpoolOffset | None:
    """What the query has read, as it says itself; None: nothing yet."""
    for name in reversed(await store.names(READ)):
        stored = await store.get(name)
        if stored is not None:  # else it was replaced by a newer one meanwhile
            return SpoolOffset.from_bytes(stored)
    return None


class Room:
    """Owns what waits in a lane. Looks what the query has read only when it seems full."""

    def __init__(self, store: ObjectStore, generation: int, lane: int, limit_bytes: int) -> None:
        self._store = store
        self._generation = generation
        self._lane = lane
        self._limit = limit_bytes
        self._waiting: dict[Place, int] = {}
        self._over = asyncio.Event()
        self.is_full = False

    async def open(self) -> None:
        """Count what earlier attempts have left for the query."""
        offset = await read_so_far(self._store)
        places = map(place_of, await self._store.names(manifests_of(self._generation, self._lane)))
        left = [place for place in places if place is not None and (offset is None or not offset.has_read(place))]
        for start in range(0, len(left), AT_ONCE):
            steps = await read_steps(self._store, left[start : start + AT_ONCE])
            self._waiting |= {place: step.payload for place, step in steps.items()}

    def took(self, place: Place, payload: int) -> None:
        """The query has so much more to read."""
        self._waiting[place] = payload

    async def wait(self) -> None:
        """Return when there is room, or after `give_up`. Raises: StateError."""
        while self._has_none() and not self._over.is_set():
            await self._look()
            if not self._has_none():
                break
            if not self.is_full:
                LOG.info("lane %s of the spool is full, the query has to read first", self._lane)
            self.is_full = True
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._over.wait()
            except TimeoutError:
                continue
        self.is_full = False

    def give_up(self) -> None:
        """The fetcher stops: wait no more, what it holds may go over the limit."""
        self._over.set()

    def _has_none(self) -> bool:
        return sum(self._waiting.values()) >= self._limit or len(self._waiting) >= MOST_STEPS

    async def _look(self) -> None:
        offset = await read_so_far(self._store)
        if offset is not None:
            self._waiting = {place: size for place, size in self._waiting.items() if not offset.has_read(place)}
