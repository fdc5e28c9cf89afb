"""Decides when a checkpoint is taken."""

import asyncio
from collections.abc import Awaitable, Callable

from recordpublisher.publishers.clock import wait_at_most

MIN_PAUSE_SECONDS = 0.1
"""Seconds between a checkpoint and the next requested one.

Without this pause a thousand shards that end together would cause a thousand snapshots of a thousand shards each.
"""


class CheckpointScheduler:
    """Takes a checkpoint after each interval, and on request. With an interval of -1 it takes them on request only.

    Requests made soon after a checkpoint share the next one. The scheduler is stopped and never cancelled, so that no flush or store is
    interrupted.
    """

    def __init__(self, interval_ms: int) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
        self._requested = asyncio.Event()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Prepare for a run."""
        self._stopping.clear()

    def request(self) -> None:
        """Request a checkpoint soon.

        A sink requests one, and so does the end of a shard whose children in other subtasks wait for the checkpoint (S2).
        """
        self._requested.set()

    def stop(self) -> None:
        """Make `run` return after the current checkpoint."""
        self._stopping.set()
        self._requested.set()

    async def run(self, take: Callable[[], Awaitable[object]]) -> None:
        """Take checkpoints until stopped. Raises: the errors of `take`, such as FencedError, SinkError and StateError."""
        earliest = 0.0
        while not self._stopping.is_set():
            if await wait_at_most(self._requested, self._seconds):
                await wait_at_most(self._stopping, earliest - asyncio.get_running_loop().time())
            self._requested.clear()
            if not self._stopping.is_set():
                await take()
                earliest = asyncio.get_running_loop().time() + MIN_PAUSE_SECONDS
