"""Lets tasks of the sink wait for a notification, or in a queue for free capacity (K1, K3)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from recordpublisher.publishers.clock import Clock

log = logging.getLogger(__name__)
LONG_WAIT_SECONDS = 1.0
"""A write that waits longer logs one warning (Flink: after ten checks of 100 ms)."""


class Notifier:
    """Wakes all tasks that wait for it; each checks its own condition again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        """Wake every waiting task."""
        self._event.set()
        self._event.clear()

    async def wait(self, timeout_seconds: float | None = None) -> None:
        """Return at the next notification, or after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()


class FifoWaiters:
    """The writes that wait at the limit, served in the order of their arrival.

    A completion wakes the first. A write that leaves the queue, served or cancelled, wakes the next, so no notification is lost (R3).
    """

    def __init__(self, clock: Clock, check_interval_seconds: float, on_cycle: Callable[[], None]) -> None:
        self._clock = clock
        self._check_interval_seconds = check_interval_seconds
        self._on_cycle = on_cycle
        self.waiting: list[Notifier] = []
        """The waiters in order; the first one is served first."""

    def __len__(self) -> int:
        return len(self.waiting)

    def notify_first(self) -> None:
        """Let the first waiter check for capacity."""
        if self.waiting:
            self.waiting[0].notify_all()

    async def wait_until(
        self,
        has_capacity: Callable[[], bool],
        describe: Callable[[], str],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Return when there is capacity and no earlier waiter is left. Each failed check counts as a back-pressure cycle.

        - `describe`: returns the text about the limits for the warning.
        - `prepare`: awaited first, while this write already has its place in the queue, so that no later write passes it.
        """
        began, has_warned, me = self._clock.monotonic(), False, Notifier()
        self.waiting.append(me)
        try:
            if prepare is not None:
                await prepare()
            while self.waiting[0] is not me or not has_capacity():
                self._on_cycle()
                await me.wait(self._check_interval_seconds)
                waited = self._clock.monotonic() - began
                if waited > LONG_WAIT_SECONDS and not has_warned:
                    has_warned = True
                    log.warning("a write has been waiting for %.1f s: %s", waited, describe())
        finally:
            self.waiting.remove(me)
            self.notify_first()
