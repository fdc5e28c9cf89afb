"""An event loop with real sockets, on which time runs fifty times as fast: the service's 5 s are 0.1 s."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SPEED = 50
LONGEST_SECONDS = 0.005
"""Between two readings of the clock at most this many real seconds count, besides requested sleep: more means that the machine stalled."""
EPOCH_MS = 1_700_000_000_000


class _FastSelector(selectors.DefaultSelector):
    """Waits a fiftieth of the requested time. Counts real seconds, without those in which the machine did not run this process."""

    def __init__(self) -> None:
        super().__init__()
        self._counted, self._read_at = 0.0, time.monotonic()

    def select(self, timeout: float | None = None) -> list[Any]:
        hasty = None if timeout is None else timeout / SPEED
        self.count(0.0)
        ready = super().select(hasty)
        self.count(hasty or 0.0)
        return ready

    def count(self, requested: float) -> float:
        """The counted seconds so far; `requested`: how many of those since the last reading were requested sleep."""
        now = time.monotonic()
        self._counted += min(now - self._read_at, requested + LONGEST_SECONDS)
        self._read_at = now
        return self._counted


class FastLoop(asyncio.SelectorEventLoop):
    """Real events, fast timers. A second in which the machine stalls would be almost a minute of silence: it is not counted."""

    def __init__(self) -> None:
        self._fast = _FastSelector()
        super().__init__(self._fast)

    def time(self) -> float:
        return self._fast.count(0.0) * SPEED


class FastClock:
    """The Clock port, for the job and for the embedded endpoint; `jump` advances the time of this clock alone."""

    def __init__(self) -> None:
        self._jumped_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + round(asyncio.get_event_loop().time() * 1000) + self._jumped_ms

    def monotonic(self) -> float:
        return asyncio.get_event_loop().time() + self._jumped_ms / 1000

    def boottime(self) -> float:
        return self.monotonic()

    def cpu_seconds(self) -> float:
        return 0.0

    def jump(self, seconds: float) -> None:
        self._jumped_ms += round(seconds * 1000)


def run_fast(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh fast loop."""
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(coroutine)
