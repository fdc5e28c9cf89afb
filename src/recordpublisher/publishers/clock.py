"""Clock: the injected source of time, so that tests run on virtual time; and a time-out that ignores suspensions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """The wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow. A gap between two readings means that the process was suspended or starved."""
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

    The time is counted in `TIMEOUT_PARTS` equal parts. A part that ended late, because the process was suspended or starved, does not
    count. So after a gap at least one more part passes, in which data that has arrived meanwhile is read.
    """
    async with asyncio.timeout(None) as timeout:
        timer = _ObservedTimer(clock, seconds / TIMEOUT_PARTS, timeout)
        try:
            yield
        finally:
            timer.stop()


class _ObservedTimer:
    """Owns the timer of one wait and the number of parts that have counted."""

    def __init__(self, clock: Clock, part: float, timeout: asyncio.Timeout) -> None:
        self._clock = clock
        self._part = part
        self._timeout = timeout
        self._counted_parts = 0
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._due = self._clock.monotonic() + self._part
        self._timer = self._loop.call_later(self._part, self._check)

    def _check(self) -> None:
        was_late = self._clock.monotonic() - self._due > min(self._part, MAX_LATENESS_SECONDS)
        self._counted_parts += not was_late
        if self._counted_parts >= TIMEOUT_PARTS:
            self._timeout.reschedule(self._loop.time())
        else:
            self._arm()
