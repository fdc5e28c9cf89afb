"""SuspensionDetector: whether this process runs, or was stopped or starved without noticing (W3, W7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock

BEAT_SECONDS = 0.5
"""Between two beats."""
GAP_SECONDS = 2.0
"""A beat that comes later than this: the process was suspended (SIGSTOP, a machine that slept, a loop that was blocked)."""


class SuspensionDetector:
    """Owns when the loop last beat, and how much time went by in which it should have run and did not.

    A quota of 10 ms in 100 shows no gap, but every beat comes late: that time is lost too, and counts for no evidence (W3). A machine
    that sleeps may stop the monotonic clock; then only the wall clock shows the gap. A step of the wall clock looks the same and costs no
    more than one read of each silent shard.
    """

    def __init__(self, clock: Clock, woke_up: Callable[[float], None]) -> None:
        self._clock = clock
        self._woke_up = woke_up
        self._lost = 0.0
        self.lag_ms = 0
        """How late the last beat came (A1)."""
        self.begin()

    @property
    def lost_seconds(self) -> float:
        """All the time so far in which the process should have run and did not."""
        return self._lost

    def begin(self) -> None:
        """A run begins: the time since the last one was not meant to be lived through."""
        self._beat_at = self._clock.monotonic()
        self._wall_at = self._clock.now_ms()

    async def run(self) -> None:
        """Beat."""
        while True:
            due = self._clock.monotonic() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self.lag_ms = max(0, round((self._clock.monotonic() - due) * 1000))
            self.look()
            self.begin()

    def look(self) -> None:
        """Notice a gap as soon as anybody asks: whoever runs first after a suspension may be the one who would judge wrongly."""
        late = self._seconds_since_beat() - BEAT_SECONDS
        if late <= 0:
            return
        self._lost += late
        self._beat_at += late
        self._wall_at += round(late * 1000)
        if late >= GAP_SECONDS:
            self._woke_up(late)

    def _seconds_since_beat(self) -> float:
        slept = (self._clock.now_ms() - self._wall_at) / 1000
        ran = self._clock.monotonic() - self._beat_at
        return slept if slept >= ran + GAP_SECONDS else ran
