"""Deadlines: cancels handlers that take too long, with one timer for all of them."""

from __future__ import annotations

import asyncio

_CHECK_SECONDS = _LATE_SECONDS = 1.0
"""How often the timer fires while handlers run. When it is this late, the process was stopped: the time since the last check does not
count."""


class Deadlines:
    """Every handler has the same time-out, so that the one that began first ends first. A handler that never suspends has none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[asyncio.Task[None], float] = {}
        self._expired: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._checked_at = 0.0
        self._stopped_seconds = 0.0

    def start(self, task: asyncio.Task[None]) -> None:
        """The handler that this worker runs has suspended: its time begins."""
        self._running[task] = asyncio.get_running_loop().time() - self._stopped_seconds + self._seconds
        if self._timer is None:
            self._check_within(self._seconds)

    def finish(self, task: asyncio.Task[None]) -> bool:
        """The handler has ended. Returns whether it was cancelled here; then the worker itself is not cancelled."""
        self._running.pop(task, None)
        if task not in self._expired:
            return False
        self._expired.discard(task)
        task.uncancel()
        return True

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._checked_at = loop.time()
        self._timer = loop.call_later(min(seconds, _CHECK_SECONDS), self._cancel_expired)

    def _cancel_expired(self) -> None:
        time = asyncio.get_running_loop().time()
        self._timer = None
        if time - self._checked_at > _CHECK_SECONDS + _LATE_SECONDS:
            self._stopped_seconds += time - self._checked_at
        now = time - self._stopped_seconds
        for task, deadline in list(self._running.items()):
            if deadline > now:
                self._check_within(deadline - now)
                return
            del self._running[task]
            self._expired.add(task)
            task.cancel()
