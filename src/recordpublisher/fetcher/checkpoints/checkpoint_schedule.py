"""Decides when a checkpoint is taken, and measures how old the last stored checkpoint is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from recordpublisher.publishers.clock import Clock, wait_until_set
from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.safe_text import with_notes

log = logging.getLogger("recordpublisher.fetcher")
WARNING_SECONDS = 60.0
"""How often failed checkpoints are logged (seconds)."""
MIN_PAUSE_SECONDS = 0.1
"""The shortest pause between a checkpoint and one that was requested (seconds).

Without it, a thousand shards that end together would cause a thousand snapshots of a thousand shards each.
"""


class CheckpointScheduler:
    """Takes a checkpoint after each interval and on request. With an interval of -1 ms it takes checkpoints on request only.

    Requests made soon after a checkpoint share the next one. To end the scheduler, call `stop` and wait for `run`. Do not cancel `run`:
    that would interrupt a flush or a write to the store.
    """

    def __init__(self, interval_ms: int) -> None:
        self._seconds = None if interval_ms < 0 else interval_ms / 1000
        self._requested = asyncio.Event()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Make `run` possible again after `stop`."""
        self._stopping.clear()

    def request(self) -> None:
        """Request a checkpoint soon.

        Sinks call this. The fetcher calls it at the end of a shard, because other workers begin the child shards only after that end is
        stored.
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
            if await wait_until_set(self._requested, self._seconds):
                await wait_until_set(self._stopping, earliest - asyncio.get_running_loop().time())
            self._requested.clear()
            if not self._stopping.is_set():
                await take()
                earliest = asyncio.get_running_loop().time() + MIN_PAUSE_SECONDS


class CheckpointAge:
    """Measures the age of the last stored checkpoint, the duration of one in progress, and how many written records are not stored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: Callable[[], int] = lambda: 0
        self._covered = 0
        self._stored: float | None = None
        self.durations = Histogram()
        """How long the stored checkpoints took (ms), counted from the first attempt."""
        self.start_run()

    def start_run(self) -> None:
        """Forget a checkpoint that the last run has not stored. The store was not away between two runs."""
        self._started: float | None = None
        self._storing: float | None = None
        self.storing_error = ""
        """The error of the last attempt to store the positions of the checkpoint in progress; empty if there is none."""
        self._failures, self._warned_at = 0, float("-inf")

    def on_resume(self, lost_seconds: float) -> None:
        """Handle the end of a suspension of the process, which took `lost_seconds`. The store was not away in that time."""
        now = self._clock.monotonic()
        self._started = None if self._started is None else min(now, self._started + lost_seconds)
        self._storing = None if self._storing is None else min(now, self._storing + lost_seconds)

    def count_records(self, written: Callable[[], int]) -> None:
        """Set the function that returns how many records were written to the sink so far."""
        self._written = written

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the `with` block, which takes and stores a checkpoint. If the block raises, the checkpoint does not count as stored."""
        self._started = started = self._clock.monotonic() if self._started is None else self._started
        written = self._written()
        yield
        self._stored, self._started, self._covered = self._clock.monotonic(), None, written
        self.durations.add((self._stored - started) * 1000)

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Measure the part of a checkpoint that writes positions, from its first attempt until one succeeds."""
        self._storing = self._clock.monotonic() if self._storing is None else self._storing
        try:
            yield
        except Exception as error:
            self.storing_error = with_notes(error)
            raise
        self._storing, self.storing_error = None, ""

    def warn_of_failure(self, error: Exception) -> None:
        """Log that a checkpoint was not stored. While a store is away, one warning a minute has the number of failures since the last."""
        self._failures += 1
        now = self._clock.monotonic()
        if now - self._warned_at < WARNING_SECONDS:
            return
        times = "" if self._failures == 1 else f" ({self._failures} times since the last such line)"
        log.warning("a checkpoint was not stored%s, the next one tries again: %s", times, with_notes(error))
        self._failures, self._warned_at = 0, now

    @property
    def storing_ms(self) -> int:
        """Time since the checkpoint in progress first tried to write positions (ms); 0 if no such write is unfinished."""
        return self._since(self._storing) or 0

    @property
    def unstored_records(self) -> int:
        """Number of records written since the last stored checkpoint began."""
        return self._written() - self._covered

    @property
    def age_ms(self) -> int | None:
        """Time since the last checkpoint was stored (ms); None before the first one."""
        return self._since(self._stored)

    @property
    def running_ms(self) -> int:
        """Time since the checkpoint in progress began (ms), or 0 if none is in progress.

        If the last checkpoints have failed, the time counts from the beginning of the first of them.
        """
        return self._since(self._started) or 0

    def _since(self, moment: float | None) -> int | None:
        return None if moment is None else round((self._clock.monotonic() - moment) * 1000)
