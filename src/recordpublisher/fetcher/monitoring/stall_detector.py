"""Measures how long the global watermark has not risen although there was something to emit (A2)."""

from collections.abc import Iterable

from ..shards.shard_entry import ShardEntry


class WatermarkStallDetector:
    """Owns the last global watermark that a check saw.

    A stream without records does not stall the watermark. So a check counts only if it finds records held back, or if records above the
    watermark were emitted since the previous check.
    """

    def __init__(self, max_gap: float) -> None:
        self._unchanged = UnchangedTimer(max_gap)
        self._records = 0

    @property
    def seconds(self) -> float:
        """How long the global watermark has been stalled (seconds)."""
        return self._unchanged.seconds

    def update(self, value: int | None, entries: Iterable[ShardEntry], records: int, now: float) -> float:
        """Check the global watermark `value`, and return how long it has been stalled (seconds).

        `records` is the number of records emitted so far, and `now` the time in monotonic seconds.
        """
        has_emitted, self._records = records > self._records, records
        shards = [entry for entry in entries if entry.is_open]
        is_held = any(entry.status.is_held for entry in shards)
        if is_held or (has_emitted and any(_is_above(entry, value) for entry in shards)):
            return self._unchanged.observe((value,), now)
        return self._unchanged.skip((value,), now)


def _is_above(entry: ShardEntry, value: int | None) -> bool:
    return entry.state.watermark is not None and (value is None or entry.state.watermark > value)


class UnchangedTimer:
    """Adds up the time between checks that observed the same value.

    The time between two checks counts up to `max_gap` seconds. A process that was suspended or starved made no checks in that time, and
    must not resume with alarms about others.
    """

    def __init__(self, max_gap: float) -> None:
        self._max_gap = max_gap
        self._value: object = None
        self._checked_at: float | None = None
        self.seconds = 0.0

    def observe(self, value: object, now: float) -> float:
        """Register that a check observed `value`, and return how long it has been unchanged (seconds)."""
        if self._checked_at is None or value != self._value:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._checked_at, self._max_gap)
        self._value, self._checked_at = value, now
        return self.seconds

    def skip(self, value: object, now: float) -> float:
        """Register an inconclusive check: the time since the last check does not count. Another value starts from zero."""
        if self._checked_at is not None and value == self._value:
            self._checked_at = now
            return self.seconds
        self.reset()
        return 0.0

    def reset(self) -> None:
        """Start from zero."""
        self._checked_at, self.seconds = None, 0.0
