"""Provides an asyncio loop whose time jumps to the next timer when nothing else is ready, and a clock on it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000
"""The wall clock when a virtual loop starts: 2023-11-14T22:13:20Z."""


class _VirtualTimeSelector(selectors.SelectSelector):
    """Never waits. A timeout advances the loop's time instead."""

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
                "deadlock on virtual time: every task waits and no timer is set (sockets and threads do not work here)"
            )
        if not ready and timeout:
            self.time += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, starting at 0 s."""

    def __init__(self) -> None:
        self._time_selector = _VirtualTimeSelector()
        super().__init__(self._time_selector)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._time_selector.time

    def suspend(self, seconds: float) -> None:
        """Advance the time while nothing runs, as when the process is stopped."""
        self._time_selector.advance(seconds)

    def work(self, seconds: float) -> None:
        """Advance the time while this process is busy, as when it decodes a large response."""
        self._time_selector.advance(seconds, cpu_seconds=seconds)

    @property
    def cpu_seconds(self) -> float:
        """The seconds of `work` so far."""
        return self._time_selector.cpu_seconds


class VirtualClock:
    """Implements the Clock port on the running virtual loop. The wall clock starts at EPOCH_MS."""

    def now_ms(self) -> int:
        """Return the wall-clock time, epoch ms."""
        return EPOCH_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        """Return the loop's seconds, or 0 outside a loop."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def boottime(self) -> float:
        """Return the loop's seconds, because a virtual machine does not sleep."""
        return self.monotonic()

    def cpu_seconds(self) -> float:
        """Return the seconds of the loop's `work`."""
        return getattr(asyncio.get_running_loop(), "cpu_seconds", 0.0)


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
