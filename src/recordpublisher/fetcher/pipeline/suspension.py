"""SuspensionDetector: whether this process was suspended or starved of CPU (W3, W7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock

BEAT_SECONDS = 0.5
"""Between two beats of the loop."""
GAP_SECONDS = 2.0
"""A beat that is later than this means: the process was suspended (SIGSTOP, a sleeping machine, a blocked loop)."""


class SuspensionDetector:
    """Owns when the loop last beat, and for how long in total the process should have run and did not.

    A CPU quota of 10 ms in 100 shows no gap, but every beat is late: that time is lost, too, and does not count as observed (W3). While a
    machine sleeps the monotonic clock may stop; then only the wall clock shows the gap. A step of the wall clock looks the same, and costs
    no more than one read of each silent shard.
    """

    def __init__(self, clock: Clock, on_resume: Callable[[float], None]) -> None:
        self._clock = clock
        self._on_resume = on_resume
        self._lost = self._ran = 0.0
        self.lag_ms = 0
        """How late the last beat was (A1)."""
        self.reset()

    @property
    def lost_seconds(self) -> float:
        """The total time so far in which the process should have run and did not."""
        return self._lost

    @property
    def running_seconds(self) -> float:
        """The total time in which this process ran: not while it was suspended or starved, nor between two runs (W10)."""
        return self._ran + min(self._clock.monotonic() - self._beat_at, BEAT_SECONDS)

    def reset(self) -> None:
        """Start measuring now; the time between two runs is not lost."""
        self._beat_at = self._clock.monotonic()
        self._wall_at = self._clock.now_ms()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            due = self._clock.monotonic() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self.lag_ms = max(0, round((self._clock.monotonic() - due) * 1000))
            self.beat()

    def beat(self) -> None:
        """The loop runs."""
        self.check()
        self._ran = self.running_seconds
        self.reset()

    def check(self) -> None:
        """Detect a gap now. Whatever runs first after a suspension calls this, before it judges idleness or emits."""
        late = self._seconds_since_beat() - BEAT_SECONDS
        if late <= 0:
            return
        self._lost += late
        self._beat_at += late
        self._wall_at += round(late * 1000)
        if late >= GAP_SECONDS:
            self._on_resume(late)

    def _seconds_since_beat(self) -> float:
        by_wall_clock = (self._clock.now_ms() - self._wall_at) / 1000
        by_monotonic_clock = self._clock.monotonic() - self._beat_at
        # a machine that slept: only the wall clock went on
        return by_wall_clock if by_wall_clock >= by_monotonic_clock + GAP_SECONDS else by_monotonic_clock
