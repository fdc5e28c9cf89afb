"""Clock: the injected source of time, so that tests run on virtual time; and waiting with a limit, also one that ignores suspensions."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Clock(Protocol):
    """The wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""

    def monotonic(self) -> float:
        """Seconds that only grow. A gap between two readings means that the process was suspended or starved."""

    def boottime(self) -> float:
        """Seconds that only grow, also while the machine sleeps. Nobody can set them back."""

    def cpu_seconds(self) -> float:
        """Seconds in which this thread used the CPU. They do not grow while the process is suspended or starved."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, as asyncio's loop counts them."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds since an arbitrary point, also those in which the machine sleeps.

        CLOCK_BOOTTIME of Linux, CLOCK_MONOTONIC of macOS, where Python's `monotonic` is another clock. On Windows `monotonic` counts sleep.
        """
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def cpu_seconds(self) -> float:
        """Seconds in which this thread used the CPU."""
        return time.thread_time()


_BOOTTIME: int | None = getattr(time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None)
TIMEOUT_PARTS = 4
MAX_LATENESS_SECONDS = 1.0
ROUNDING_SECONDS = 1e-6


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, for at most this time (None: without limit). Returns whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def observed_timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError when the block has waited for `seconds` of observed time, as `ObservedTimeouts` counts it."""
    timeouts = ObservedTimeouts(clock, seconds)
    async with asyncio.timeout(None) as timeout:
        timeouts.begin(timeout)
        try:
            yield
        finally:
            timeouts.stop()


class ObservedTimeouts:
    """Time-outs of waits that may last equally long: one timer serves all of them, since each timer costs more than a short call.

    The time is counted in parts, at least `TIMEOUT_PARTS`. A part that ended late counts only if this thread was busy meanwhile: then it
    counts as a whole. Otherwise the process was suspended or starved from outside, and the part does not count. So after such a gap
    at least one more part passes, in which data that has arrived meanwhile is read.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._part = seconds / TIMEOUT_PARTS
        self._observed = 0.0
        self._began: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout: asyncio.Timeout) -> None:
        """Let this one, which has been entered, expire after that time."""
        if self._timer is None:
            self._loop = asyncio.get_running_loop()
            self._start_part(self._part)
        self._began[timeout] = self._observed + self._loop.time() - self._part_began

    def end(self, timeout: asyncio.Timeout) -> None:
        """The wait is over."""
        self._began.pop(timeout, None)

    def stop(self) -> None:
        """Let none expire any more."""
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
        if late - busy <= min(self._part, MAX_LATENESS_SECONDS):
            self._observed += self._wait + max(busy, 0.0)
        else:  # nobody has waited for longer than what counts
            self._began = {timeout: min(began, self._observed) for timeout, began in self._began.items()}
        self._timer = None
        for timeout, began in list(self._began.items()):  # the oldest one first
            left = began + self._seconds - self._observed
            if left > ROUNDING_SECONDS:
                self._start_part(min(self._part, left))
                return
            self.end(timeout)
            timeout.reschedule(self._loop.time())
