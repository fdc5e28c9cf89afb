"""The source of the endpoint's time: the wall clock by default, a manual clock in tests."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The time source of the endpoint."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""


class SteppingClock:
    """A clock that can jump ahead of the clock that it wraps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._clock.now_ms() + self._ahead_ms

    def step(self, ms: int) -> None:
        """Jump ahead by `ms` milliseconds."""
        self._ahead_ms += ms


class ManualClock:
    """A clock that changes only by `advance`. It is for the endpoint, and for everything else that takes a clock, such as sinks.

    `advance` also calls the listeners of `on_advance`. Waits for retries and intervals do not depend on this clock. They follow the event
    loop, and `run_virtual` makes them short.
    """

    def __init__(self, now_ms: int = 1_600_000_000_000) -> None:
        self._began_ms = self._now_ms = now_ms
        self._listeners: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return (self._now_ms - self._began_ms) / 1000

    def boottime(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return self.monotonic()

    def cpu_seconds(self) -> float:
        """Return 0, because no time passes while code runs."""
        return 0.0

    def advance(self, ms: int) -> None:
        """Move time forward by `ms` milliseconds, then call the listeners."""
        self._now_ms += ms
        for listener in self._listeners:
            listener()

    def on_advance(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every `advance`."""
        self._listeners.append(listener)
