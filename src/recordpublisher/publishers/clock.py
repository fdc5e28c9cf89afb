"""Defines Clock, from which all code takes the time, and functions that wait with a time limit. Tests can run on virtual time."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """The wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""

    def monotonic(self) -> float:
        """Return the reading of a clock that never goes back (seconds).

        If it grows much between two readings, the process was suspended or had no CPU.
        """

    def boottime(self) -> float:
        """Return the reading of a clock that never goes back, and that runs even while the machine sleeps (seconds).

        Setting the wall clock does not change it.
        """

    def cpu_seconds(self) -> float:
        """Return the CPU time of this thread (seconds). It does not grow while the process is suspended or has no CPU."""


class SystemClock:
    """A Clock that reads the machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary point, as asyncio's loop counts them."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return seconds since an arbitrary point, including the time in which the machine sleeps.

        On Linux this is CLOCK_BOOTTIME. On macOS it is CLOCK_MONOTONIC, which Python's `monotonic` does not use. On
        Windows `monotonic` counts sleep.
        """
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def cpu_seconds(self) -> float:
        """Return the CPU time of this thread (seconds)."""
        return time.thread_time()


_BOOTTIME: int | None = getattr(time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None)
TIMEOUT_PARTS = 4
MAX_LATENESS_SECONDS = 1.0
ROUNDING_SECONDS = 1e-6


async def wait_until_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set, for at most `seconds` (None means no limit). Return whether the event is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def observed_timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the `with` block takes longer than `seconds`. Time in which the process was suspended does not count."""
    timeouts = ObservedTimeouts(clock, seconds)
    async with asyncio.timeout(None) as timeout:
        timeouts.begin(timeout)
        try:
            yield
        finally:
            timeouts.stop()


class ObservedTimeouts:
    """Time-outs of many waits, all with the same limit. One timer serves all of them, because each timer costs more than a short call.

    The time of a wait is divided into at least `TIMEOUT_PARTS` parts. If a part ends late although this thread was not busy, the process
    was suspended or had no CPU. The part then does not count, and at least one more part follows. In this part, data that arrived during
    the suspension is read.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._part = seconds / TIMEOUT_PARTS
        self._observed = 0.0
        self._began: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout: asyncio.Timeout) -> None:
        """Start to count the time of `timeout`. Call it inside the `async with` block of `timeout`."""
        if self._timer is None:
            self._loop = asyncio.get_running_loop()
            self._start_part(self._part)
        self._began[timeout] = self._observed + self._loop.time() - self._part_began

    def end(self, timeout: asyncio.Timeout) -> None:
        """Forget `timeout`, because its wait is over."""
        self._began.pop(timeout, None)

    def stop(self) -> None:
        """Stop the timer. No time-out expires from now on."""
        if self._timer is not None:
            self._timer.cancel()

    def _start_part(self, seconds: float) -> None:
        self._wait, self._part_began = seconds, self._loop.time()
        self._due = self._clock.monotonic() + seconds
        self._busy_before = self._clock.cpu_seconds()
        self._timer = self._loop.call_later(seconds, self._end_part)

    def _end_part(self) -> None:
        late = self._clock.monotonic() - self._due
        busy = min(late, self._clock.cpu_seconds() - self._busy_before)
        # This thread was busy, or was stopped for a moment only, so the whole slice of the wait was observed.
        if late - busy <= min(self._part, MAX_LATENESS_SECONDS):
            self._observed += self._wait + max(busy, 0.0)
        else:
            # The process was suspended, so this slice was not observed. A wait that began in it is observed from now on.
            self._began = {timeout: min(began, self._observed) for timeout, began in self._began.items()}
        self._timer = None
        # The dict is in the order of insertion, so the wait that began first comes first.
        for timeout, began in list(self._began.items()):
            left = began + self._seconds - self._observed
            if left > ROUNDING_SECONDS:
                self._start_part(min(self._part, left))
                return
            self.end(timeout)
            timeout.reschedule(self._loop.time())
