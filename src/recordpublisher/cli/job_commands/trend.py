"""Trend: throughput and lag of the last minutes, as two small charts of one line."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from recordpublisher.plugins.dashboard.history import HistoryPoint, point_of
from recordpublisher.plugins.dashboard.snapshot import JobSnapshot

from ..output import duration, rate

BARS = "▁▂▃▄▅▆▇█"
POINTS = 30
"""Of a chart: at `lag --watch`'s 5 s they are two and a half minutes."""


class Trend:
    """Owns the totals of the last readings."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)

    def add(self, snapshot: JobSnapshot) -> None:
        """Take the totals of a snapshot, once."""
        if not self._points or self._points[-1].time_ms != snapshot.time_ms:
            self._points.append(point_of(snapshot))

    def line(self) -> str | None:
        """What is known of both; None before there are two readings."""
        if len(self._points) < 2:
            return None
        rates = [each.records_per_second for each in self._points]
        lags = [each.lag_ms for each in self._points]
        charts = [
            f"{name} {bars(values)} {last}"
            for name, values, last in (
                ("records/s", rates, rate(rates[-1])),
                ("largest lag", lags, duration(lags[-1])),
            )
            if any(value is not None for value in values)
        ]
        span = duration(self._points[-1].time_ms - self._points[0].time_ms)
        return f"In {span}: {', '.join(charts)}" if charts else None


def bars(values: Sequence[float | None]) -> str:
    """A bar for each value, the highest for the largest; a blank for one that is not known."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else BARS[round(value / top * (len(BARS) - 1))] for value in values)
