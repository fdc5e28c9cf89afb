"""Runs a coroutine on an asyncio loop whose time jumps to the next timer if nothing else is ready."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
EPOCH_MS = 1_700_000_000_000
"""The wall-clock time when a virtual loop starts (epoch ms): 2023-11-14T22:13:20Z."""


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new virtual loop, and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which starts at 0 s."""

    def __init__(self) -> None:
        self._time_selector = _VirtualTimeSelector()
        super().__init__(self._time_selector)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._time_selector.time

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Call the function now, in this thread, without advancing the time. `asyncio.to_thread` uses it, for example to read a file."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def suspend(self, seconds: float) -> None:
        """Advance the time while nothing runs, as if the process was suspended."""
        self._time_selector.advance(seconds)

    def work(self, seconds: float) -> None:
        """Advance the time while this process is busy, for example with decoding a large response."""
        self._time_selector.advance(seconds, cpu_seconds=seconds)

    @property
    def cpu_seconds(self) -> float:
        """Total of the seconds that `work` was called with."""
        return self._time_selector.cpu_seconds


class VirtualClock:
    """A `Clock` that shows the time of the running virtual loop.

    `start_ms`: the wall-clock time when the loop starts (epoch ms).
    """

    def __init__(self, start_ms: int = EPOCH_MS) -> None:
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Return the wall-clock time (epoch ms)."""
        return self._start_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        """Return the loop's time in seconds, or 0 if no loop is running."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def boottime(self) -> float:
        """Return the loop's time in seconds: on virtual time the machine never sleeps."""
        return self.monotonic()

    def cpu_seconds(self) -> float:
        """Return the loop's `cpu_seconds`, or 0 if the loop is not virtual."""
        return getattr(asyncio.get_running_loop(), "cpu_seconds", 0.0)


class _VirtualTimeSelector(selectors.SelectSelector):
    """Never waits. If nothing is ready, it advances the loop's time to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.time = self.cpu_seconds = 0.0

    def advance(self, seconds: float, cpu_seconds: float = 0.0) -> None:
        self.time += seconds
        self.cpu_seconds += cpu_seconds

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError(
                "deadlock on virtual time: every task waits, and no timer is set. (Neither sockets nor threads that "
                "the job itself starts work on virtual time.)"
            )
        if not ready and timeout:
            self.time += timeout
        return ready
