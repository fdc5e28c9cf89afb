"""Opening a generation: the lanes of the one before are ended for good, then the new ones begin where they ended."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock

from .generation import Generation, newest_generation, put_generation
from .history import sealed, state_of

LOG = logging.getLogger("recordpublisher.spark")


async def open_generation(
    store: ObjectStore, lanes: int, start: Callable[[], Awaitable[State]], clock: Clock
) -> Generation:
    """A generation of so many lanes; of several starts at once the last one has the spool. `start` tells where a new job begins.

    Whoever is still at work in an older generation finds its lane sealed and appends no more. Raises: StateError.
    """
    token = uuid.uuid4().hex
    while True:
        before = await newest_generation(store)
        if before is None:
            opened = Generation(1, lanes, token, await start(), clock.now_ms())
        else:
            ends = await sealed(store, before, token, clock.now_ms())
            opened = Generation(before.number + 1, lanes, token, state_of(before, ends), clock.now_ms())
        if await put_generation(store, opened):
            LOG.info("generation %s of the spool is open, with %s lanes", opened.number, lanes)
            return opened
