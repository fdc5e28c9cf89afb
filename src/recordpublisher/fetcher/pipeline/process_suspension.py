"""Finds out whether this process was suspended (stopped, or on a sleeping machine) or got too little CPU (W3, W7)."""

import asyncio
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock

TICK_SECONDS = 0.5
"""Time between two ticks (seconds). A tick is a timer of the event loop."""
GAP_SECONDS = 2.0
"""A tick that is later than this (seconds) shows that the process was suspended, for example by SIGSTOP or a sleeping machine."""


class SuspensionDetector:
    """Measures lost time, in which this process should have run and did not: the time by which a timer of the event loop is late.

    With a CPU quota, for example 10 ms in 100, there is no long gap, but every tick of the timer is late. That time is lost too, and does
    not count as time in which a shard was observed.

    A sleep of the machine shows in the clock `boottime`, and the pause of a virtual machine only in the wall clock. A wall clock that is
    set ahead looks like such a pause.
    """

    def __init__(self, clock: Clock, on_resume: Callable[[float], None]) -> None:
        self._clock = clock
        self._on_resume = on_resume
        self._lost = self._ran = 0.0
        self.lag_ms = 0
        """How late the last tick was (ms)."""
        self.reset()

    @property
    def lost_seconds(self) -> float:
        """The total time (seconds) so far in which the process should have run and did not."""
        return self._lost

    @property
    def running_seconds(self) -> float:
        """The total time (seconds) in which this process ran, without suspension, starvation and the time between two runs."""
        return self._ran + min(self._clock.boottime() - self._tick_at, TICK_SECONDS)

    def reset(self) -> None:
        """Start measuring now. The time before, for example between two runs, does not count as lost."""
        self._tick_at = self._clock.boottime()
        self._wall_at = self._clock.now_ms()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            due = self._clock.monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.lag_ms = max(0, round((self._clock.monotonic() - due) * 1000))
            self.tick()

    def tick(self) -> None:
        """Count the time since the last tick: as lost, the time by which this tick is late, and the rest as running time.

        Called while the event loop runs.
        """
        self.check()
        self._ran = self.running_seconds
        self.reset()

    def check(self) -> None:
        """Find out now whether the process was suspended, without waiting for the next tick.

        Called before shards are checked for idleness, and before records are emitted.
        """
        late = self._seconds_since_tick() - TICK_SECONDS
        if late <= 0:
            return
        self._lost += late
        self._tick_at += late
        self._wall_at += round(late * 1000)
        if late >= GAP_SECONDS:
            self._on_resume(late)

    def _seconds_since_tick(self) -> float:
        by_wall_clock = (self._clock.now_ms() - self._wall_at) / 1000
        by_boottime = self._clock.boottime() - self._tick_at
        # Only the wall clock advances while a virtual machine is paused.
        return by_wall_clock if by_wall_clock >= by_boottime + GAP_SECONDS else by_boottime
