"""A loop on which real sockets work and time runs fifty times as fast: the service's 5 s are 0.1 s."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SPEED = 50
EPOCH_MS = 1_700_000_000_000


class _HastySelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(None if timeout is None else timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """Real events, hasty timers."""

    def __init__(self) -> None:
        super().__init__(_HastySelector())

    def time(self) -> float:
        return super().time() * SPEED


class FastClock:
    """The Clock port, for the job and for the embedded endpoint; `jump` lets time pass for its holder alone."""

    def __init__(self) -> None:
        self._jumped_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + round(asyncio.get_event_loop().time() * 1000) + self._jumped_ms

    def monotonic(self) -> float:
        return asyncio.get_event_loop().time() + self._jumped_ms / 1000

    def jump(self, seconds: float) -> None:
        self._jumped_ms += round(seconds * 1000)


def run_fast(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh fast loop."""
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(coroutine)
