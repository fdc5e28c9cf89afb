"""Arrivals: the arrival times that a read is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MARGIN_MS = 60_000
"""Arrival times are not ordered in a shard: reads begin so much before the first time that is asked for, and go on so much after the last.
Records that lie next to each other differ by the clocks of the service's hosts."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrival times in epoch ms: from `from_ms` on, and before `until_ms`; None is unbounded."""

    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no time is left."""
        return self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms

    @property
    def start_ms(self) -> int | None:
        """The arrival at which a read starts."""
        return None if self.from_ms is None else max(0, self.from_ms - MARGIN_MS)

    def overlap(self, other: Arrivals) -> Arrivals:
        """The times that are in both."""
        starts = [each.from_ms for each in (self, other) if each.from_ms is not None]
        ends = [each.until_ms for each in (self, other) if each.until_ms is not None]
        return Arrivals(max(starts, default=None), min(ends, default=None))

    def rows_before_end(self, arrivals: Sequence[int]) -> int:
        """How many records lie before the first one that arrived so late that no later record matters."""
        if self.until_ms is None or max(arrivals, default=0) < self.until_ms + MARGIN_MS:
            return len(arrivals)
        return next(place for place, arrival in enumerate(arrivals) if arrival >= self.until_ms + MARGIN_MS)

    def places(self, arrivals: Sequence[int]) -> list[int] | None:
        """The places of the records that arrived at these times; None for all."""
        first, end = self.from_ms, self.until_ms
        if not arrivals or ((first is None or first <= min(arrivals)) and (end is None or max(arrivals) < end)):
            return None
        return [
            place
            for place, arrival in enumerate(arrivals)
            if (first is None or first <= arrival) and (end is None or arrival < end)
        ]
