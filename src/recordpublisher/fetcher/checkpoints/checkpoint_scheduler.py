"""CheckpointScheduler: when a checkpoint is taken."""

import asyncio
from collections.abc import Awaitable, Callable

from recordpublisher.publishers.clock import wait_at_most

MIN_PAUSE_SECONDS = 0.1
"""Between a checkpoint and the next requested one: without it a thousand shards that end together would cause a thousand snapshots of a
thousand shards each."""


class CheckpointScheduler:
    """Takes a checkpoint after each interval (-1: never), and on request.

    Requests soon after a checkpoint share the next one. It is stopped and never cancelled, so that a flush or store is never cut off.
    """

    def __init__(self, interval_ms: int) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
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

    async def run(self, take: Callable[[], Awaitable[object]]) -> None:
        """Take checkpoints until stopped. Raises: FencedError, SinkError, StateError."""
        earliest = 0.0
        while not self._stopping.is_set():
            if await wait_at_most(self._requested, self._seconds):
                await wait_at_most(self._stopping, earliest - asyncio.get_running_loop().time())
            self._requested.clear()
            if not self._stopping.is_set():
                await take()
                earliest = asyncio.get_running_loop().time() + MIN_PAUSE_SECONDS
