"""Idleness judged on evidence, never on elapsed time alone (W3)."""

from __future__ import annotations

from ..watermark_rules import is_idle

LONGEST_CREDIT_SECONDS = 6.0
"""A gap between two answers counts as observed up to this long: a healthy subscription sends an empty event about every 5 s.

A longer gap means failed, throttled or withheld reads, suspension, starvation or back-pressure; what exceeds it was not observed.
"""
FRESH_SECONDS = 2.0
"""After a suspension the first answers may be from before it (under way, or in the socket's buffer): so much silence must be seen anew."""


class IdlenessTimer:
    """Adds up how long a shard was seen silent: answered reads that were empty and at the tip, without a break.

    `lost` in the methods is all the time so far in which this process was suspended (see `SuspensionDetector`); it is not credited.
    """

    def __init__(self) -> None:
        self._observed = 0.0
        self._fresh = FRESH_SECONDS
        self._last_answer: float | None = None
        self._lost_then = 0.0

    @property
    def observed_ms(self) -> int:
        """Milliseconds of evidence."""
        return round(self._observed * 1000)

    def lasts(self, interval_ms: int) -> bool:
        """Whether the shard was silent for the whole interval, and was looked at since the process last slept. -1: never."""
        if not is_idle(self.observed_ms, interval_ms):
            return False
        return self._fresh >= min(FRESH_SECONDS, interval_ms / 1000)

    def saw_silence(self, now: float, lost: float = 0.0) -> None:
        """An answered read was empty and said that it stood at the tip; `now` in monotonic seconds."""
        if self._last_answer is not None:
            seconds = now - self._last_answer - (lost - self._lost_then)
            credit = max(0.0, min(seconds, LONGEST_CREDIT_SECONDS))
            self._observed += credit
            self._fresh += credit
        self._last_answer, self._lost_then = now, lost

    def saw_life(self) -> None:
        """A record arrived, or a read stood behind the tip: the evidence is void (W4)."""
        self._observed = 0.0
        self._fresh = FRESH_SECONDS
        self._last_answer = None

    def interrupted(self) -> None:
        """Reads failed or were withheld: what comes next is not credited for the time since (W3)."""
        self._last_answer = None

    def slept(self) -> None:
        """The process was suspended: what was seen before stands, but nothing is judged by it before the shard was read anew (W3)."""
        self._last_answer = None
        self._fresh = 0.0
