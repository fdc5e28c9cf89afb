"""Measures whether a shard is idle: reads at its tip have returned no record for some time. Elapsed time alone does not count (W3).

`WatermarkStatus` keeps other reasons why watermarks do not wait for an open shard, or wait for an ended one.
"""

from __future__ import annotations

from ..global_watermark_rules import is_idle
from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals

MAX_CREDIT_SECONDS = 6.0
"""The longest time between two empty reads that counts as silence (seconds).

A healthy subscription sends an empty event about every 5 s. A longer pause means failed, throttled or delayed reads, or a process that was
suspended, starved of CPU, or waiting for its sink. Of such a pause only this much counts.
"""
MIN_SECONDS_AFTER_SUSPENSION = 2.0
"""How long a shard must be observed silent after a suspension of the process before it counts as idle again (seconds).

The first responses after a suspension may have been sent before it: they were on the network or in the socket's buffer.
"""


class IdlenessTimer:
    """Measures for how long a shard has had no records: it adds up the time over successful reads at the tip that returned no record."""

    def __init__(self, intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD) -> None:
        self._interval_ms = intervals.watermarks_ms
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read: float | None = None
        self._lost_at_last_read = 0.0

    @property
    def observed_ms(self) -> int:
        """How long the shard was observed without records (ms)."""
        return round(self._observed * 1000)

    @property
    def is_idle(self) -> bool:
        """Whether the shard had no records for the whole idle interval, and was read since the last suspension of the process."""
        was_read_since_suspension = self._since_suspension >= min(
            MIN_SECONDS_AFTER_SUSPENSION, self._interval_ms / 1000
        )
        return is_idle(self.observed_ms, self._interval_ms) and was_read_since_suspension

    def on_empty_read(self, now: float, lost: float = 0.0) -> None:
        """Count a read at the tip that returned no record.

        - `now`: the time in monotonic seconds.
        - `lost`: the total time so far in which this process was suspended (seconds).
        """
        if self._last_read is not None:
            seconds = now - self._last_read - (lost - self._lost_at_last_read)
            credit = max(0.0, min(seconds, MAX_CREDIT_SECONDS))
            self._observed += credit
            self._since_suspension += credit
        self._last_read, self._lost_at_last_read = now, lost

    def on_record(self) -> None:
        """Measure again from zero, because a record arrived or a read was behind the tip."""
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read = None

    def on_interruption(self) -> None:
        """Do not count the time until the next read as silence, because reads have failed or were delayed."""
        self._last_read = None

    def on_suspension(self) -> None:
        """Let the shard count as idle only after it was read again, because the process was suspended. The silence so far is kept."""
        self._last_read = None
        self._since_suspension = 0.0


class WatermarkStatus:
    """Keeps reasons why watermarks do not wait for a shard that is open, or wait for a shard that has ended.

    - `is_straggler`: whether the shard is so far behind that watermarks do not wait for it.
    - `awaits_children`: whether the shard has ended, and a child has no reader yet.
    - `held_since`: since when alignment has been holding the shard back (monotonic seconds), or None.
    - `held_seconds`: the total time for which alignment held the shard back earlier (until `held_since`).
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
