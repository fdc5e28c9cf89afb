"""Time as everything here takes it: injected, so that tests run on virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """Two readings: the wall clock and one that never steps."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; a gap between two readings means suspension or starvation."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, as asyncio's loop counts them."""
        return time.monotonic()


TIMEOUT_PARTS = 4
MAX_LATENESS_SECONDS = 1.0


@asynccontextmanager
async def observed_timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError when the block has waited for `seconds` of observed time.

    The time is observed in `TIMEOUT_PARTS` equal parts. A part that ended late, because the process was suspended or starved, does not
    count: after a gap one more part is waited, so what the socket holds is read before anything is judged.
    """
    async with asyncio.timeout(None) as timeout:
        watch = _ObservedTimer(clock, seconds / TIMEOUT_PARTS, timeout)
        try:
            yield
        finally:
            watch.stop()


class _ObservedTimer:
    """Owns the timer of one wait and the number of silent parts so far."""

    def __init__(self, clock: Clock, part: float, timeout: asyncio.Timeout) -> None:
        self._clock = clock
        self._part = part
        self._timeout = timeout
        self._silent_parts = 0
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._due = self._clock.monotonic() + self._part
        self._timer = self._loop.call_later(self._part, self._look)

    def _look(self) -> None:
        was_late = self._clock.monotonic() - self._due > min(self._part, MAX_LATENESS_SECONDS)
        self._silent_parts += not was_late
        if self._silent_parts >= TIMEOUT_PARTS:
            self._timeout.reschedule(self._loop.time())
        else:
            self._arm()
