"""CheckpointScheduler: when a checkpoint is taken. CheckpointTimes: when the last one was stored, and since when one is not."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from recordpublisher.publishers.clock import Clock, wait_at_most

MIN_PAUSE_SECONDS = 0.1
"""Between a checkpoint and the next requested one: without it a thousand shards that end together would cause a thousand snapshots of a
thousand shards each."""


class CheckpointScheduler:
    """Takes a checkpoint after each interval (ms; -1: never) and on request. Requests soon after a checkpoint share the next one.

    It is stopped and never cancelled, so that a flush or store is never cut off.
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


class CheckpointTimes:
    """Owns the times of a subtask's checkpoints, of which one is taken at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: float | None = None
        self._stored: float | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The block takes and stores a checkpoint; it counts as stored if the block does not raise."""
        self._started = self._clock.monotonic() if self._started is None else self._started
        yield
        self._stored, self._started = self._clock.monotonic(), None

    @property
    def age_ms(self) -> int | None:
        """Since the last one was stored; None before the first."""
        return self._since(self._stored)

    @property
    def running_ms(self) -> int:
        """Since the current one began, or one before it that was not stored; 0 when the last one is stored."""
        return self._since(self._started) or 0

    def _since(self, moment: float | None) -> int | None:
        return None if moment is None else round((self._clock.monotonic() - moment) * 1000)
