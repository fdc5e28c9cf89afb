"""Judges whether a shard is idle, by reads that returned nothing and never by elapsed time alone (W3).

It also keeps why watermarks do not wait for a shard although it is open, or wait for it although it has ended.
"""

from __future__ import annotations

from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from ..watermark_rules import is_idle

MAX_CREDIT_SECONDS = 6.0
"""The time between two reads counts up to this much: a healthy subscription sends an empty event about every 5 s.

A longer gap means failed, throttled or withheld reads, suspension, starvation or back-pressure. The time beyond it was
not observed.
"""
MIN_SECONDS_AFTER_SUSPENSION = 2.0
"""How long a shard must be observed silent after a suspension before it counts as idle again.

The first responses after a suspension may have been sent before it: they were on the network or in the socket's buffer.
"""


class IdlenessTimer:
    """Adds up for how long a shard was observed silent: successful reads at the tip that returned no record, without a break.

    `lost` in `on_empty_read` is the total time so far in which this process was suspended (see `SuspensionDetector`). That time
    does not count as silence.
    """

    def __init__(self, intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD) -> None:
        self._interval_ms = intervals.watermarks_ms
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read: float | None = None
        self._lost_at_last_read = 0.0

    @property
    def observed_ms(self) -> int:
        """How long the shard was observed silent (ms)."""
        return round(self._observed * 1000)

    @property
    def is_idle(self) -> bool:
        """Whether the shard was silent for the whole interval, and was read since the last suspension."""
        was_read_since_suspension = self._since_suspension >= min(
            MIN_SECONDS_AFTER_SUSPENSION, self._interval_ms / 1000
        )
        return is_idle(self.observed_ms, self._interval_ms) and was_read_since_suspension

    def on_empty_read(self, now: float, lost: float = 0.0) -> None:
        """Count a read at the tip that returned no record. `now` is in monotonic seconds."""
        if self._last_read is not None:
            seconds = now - self._last_read - (lost - self._lost_at_last_read)
            credit = max(0.0, min(seconds, MAX_CREDIT_SECONDS))
            self._observed += credit
            self._since_suspension += credit
        self._last_read, self._lost_at_last_read = now, lost

    def on_record(self) -> None:
        """Start again from zero, because a record arrived or a read was behind the tip (W4)."""
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read = None

    def on_interruption(self) -> None:
        """Do not count the time until the next read as silence, because reads failed or were withheld (W3)."""
        self._last_read = None

    def on_suspension(self) -> None:
        """Keep the observed time, but let the shard count as idle only after it was read again: the process was suspended (W3)."""
        self._last_read = None
        self._since_suspension = 0.0


class WatermarkStatus:
    """Owns why watermarks do not wait for a shard although it is open, or wait for it although it has ended.

    - `is_straggler`: the shard is so far behind that watermarks do not wait for it (W12).
    - `awaits_children`: the shard has ended, and a child has no reader yet (W5).
    - `held_since`: since when alignment has been holding the shard back (monotonic seconds), or None.
    - `held_seconds`: the total time of earlier holds.
    """

    def __init__(self) -> None:
        self.is_straggler = self.awaits_children = False
        self.held_since: float | None = None
        self.held_seconds = 0.0

    @property
    def is_held(self) -> bool:
        """Whether alignment holds the shard back now."""
        return self.held_since is not None

    def mark_straggler(self, is_straggler: bool) -> bool:
        """Set `is_straggler`. Return whether that is a change."""
        was, self.is_straggler = self.is_straggler, is_straggler
        return was != is_straggler

    def await_children(self, awaits: bool) -> bool:
        """Set `awaits_children`. Return whether that is a change."""
        awaited, self.awaits_children = self.awaits_children, awaits
        return awaited != awaits

    def set_held(self, is_held: bool, now: float) -> None:
        """Set whether alignment holds the shard back. `now` is in monotonic seconds."""
        if is_held and self.held_since is None:
            self.held_since = now
        elif not is_held and self.held_since is not None:
            self.held_seconds += now - self.held_since
            self.held_since = None
