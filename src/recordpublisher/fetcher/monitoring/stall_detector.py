"""WatermarkStallDetector: for how long the global watermark has stood while there was something to emit (A2, W10)."""

from __future__ import annotations

from collections.abc import Iterable

from ..shards.shard_table import ShardEntry


class WatermarkStallDetector:
    """Owns the last global value seen. A stream without records is no standstill: only looks that saw records held back, or
    records above the value emitted since the look before, are counted."""

    def __init__(self, longest_gap: float) -> None:
        self._standing = UnchangedTimer(longest_gap)
        self._records = 0

    @property
    def seconds(self) -> float:
        """For how long it has stood."""
        return self._standing.seconds

    def look(self, value: int | None, entries: Iterable[ShardEntry], records: int, now: float) -> float:
        """`records` were emitted in all, `now` in monotonic seconds; answers for how many seconds the value has stood."""
        has_emitted, self._records = records > self._records, records
        shards = [entry for entry in entries if entry.is_open]
        is_held = any(entry.held_since is not None for entry in shards)
        if is_held or (has_emitted and any(_is_above(entry, value) for entry in shards)):
            return self._standing.saw((value,), now)
        return self._standing.missed((value,), now)


def _is_above(entry: ShardEntry, value: int | None) -> bool:
    return entry.state.watermark is not None and (value is None or entry.state.watermark > value)


class UnchangedTimer:
    """Adds up the time between looks that saw the same thing.

    A gap between two looks counts up to `longest_gap` seconds: a process that was suspended or starved did not look meanwhile, and must not
    wake up with an alarm about others.
    """

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._thing: object = None
        self._looked: float | None = None
        self.seconds = 0.0

    def saw(self, thing: object, now: float) -> float:
        """A look saw `thing`; answers for how many seconds it has been so."""
        if self._looked is None or thing != self._thing:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._looked, self._longest_gap)
        self._thing, self._looked = thing, now
        return self.seconds

    def missed(self, thing: object, now: float) -> float:
        """A look could not find out: what was known of this thing stands, and the time since is not counted."""
        if self._looked is not None and thing == self._thing:
            self._looked = now
            return self.seconds
        self.over()
        return 0.0

    def over(self) -> None:
        """It is no more: begin anew."""
        self._looked, self.seconds = None, 0.0
