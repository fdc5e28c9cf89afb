"""Idleness judged on evidence, never on elapsed time alone (W3)."""

from __future__ import annotations

LONGEST_CREDIT_SECONDS = 6.0
"""A gap between two answers counts as observed up to this long: a healthy subscription sends an empty event about every 5 s.

A longer gap means failed, throttled or withheld reads, suspension, starvation or back-pressure; what exceeds it was not observed.
"""


class SilenceClock:
    """Adds up how long a shard was seen silent: answered reads that were empty and at the tip, without a break."""

    def __init__(self) -> None:
        self._observed = 0.0
        self._last_answer: float | None = None

    @property
    def observed_ms(self) -> int:
        """Milliseconds of evidence."""
        return round(self._observed * 1000)

    def saw_silence(self, now: float) -> None:
        """An answered read was empty and said that it stood at the tip; `now` in monotonic seconds."""
        if self._last_answer is not None:
            self._observed += min(now - self._last_answer, LONGEST_CREDIT_SECONDS)
        self._last_answer = now

    def saw_life(self) -> None:
        """A record arrived, or a read stood behind the tip: the evidence is void (W4)."""
        self._observed = 0.0
        self._last_answer = None

    def interrupted(self) -> None:
        """Reads failed or were withheld: what comes next is not credited for the time since (W3)."""
        self._last_answer = None
