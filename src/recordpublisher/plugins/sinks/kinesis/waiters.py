"""Waiting for completions: for room at the limit, for a flush (K1, K3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock

log = logging.getLogger(__name__)
LONG_WAIT_SECONDS = 1.0
"""A writer that waits longer is warned of, once for each wait (Flink: after ten checks of 100 ms)."""


class Notifier:
    """Wakes everybody who waits for it; each looks for itself whether its time has come."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Something changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def next(self, seconds: float | None = None) -> None:
        """Return at the next ring, at the latest after so many seconds."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            pass
        finally:
            if future in self._waiting:
                self._waiting.remove(future)


class FifoWaiters:
    """Writers at the limit, served in the order in which they came.

    A completion wakes the first; whoever leaves, cancelled or served, wakes the next: no turn is swallowed (R3).
    """

    def __init__(self, clock: Clock, look_seconds: float, on_cycle: Callable[[], None]) -> None:
        self._clock = clock
        self._look_seconds = look_seconds
        self._on_cycle = on_cycle
        self._line: list[Notifier] = []

    def __len__(self) -> int:
        return len(self._line)

    def wake(self) -> None:
        """There may be room for the first."""
        if self._line:
            self._line[0].ring()

    async def wait_until(self, has_room: Callable[[], bool], describe: Callable[[], str]) -> None:
        """Return when there is room and nobody stands before us; each look that finds none is a cycle of back-pressure."""
        began, has_warned, me = self._clock.monotonic(), False, Notifier()
        self._line.append(me)
        try:
            while self._line[0] is not me or not has_room():
                self._on_cycle()
                await me.next(self._look_seconds)
                waited = self._clock.monotonic() - began
                if waited > LONG_WAIT_SECONDS and not has_warned:
                    has_warned = True
                    log.warning("a write has been waiting for room for %.1f s: %s", waited, describe())
        finally:
            self._line.remove(me)
            self.wake()
