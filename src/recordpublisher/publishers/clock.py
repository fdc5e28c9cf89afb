"""Time as everything here takes it: injected, so that tests run on virtual time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: the wall clock and one that never steps."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; a gap between two readings means suspension or starvation."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, as asyncio's loop counts them."""
        return time.monotonic()
