"""Counts durations and other values by buckets, for histograms in monitoring systems."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import TypedDict

import msgspec

DURATIONS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000)
"""The default bounds of a histogram, for durations (ms). The last one is the default of `flink.job.max.outage`."""


class Histogram:
    """Counts values, such as durations in ms, by buckets. Any thread may call it.

    The counts are never reset, because a monitoring system subtracts two readings.

    - `bounds`: the upper bounds of the buckets, in ascending order.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_pending", "_sum")

    def __init__(self, bounds: Sequence[float] = DURATIONS_MS) -> None:
        self._bounds = [float(bound) for bound in bounds]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._pending: list[float] = []
        self._lock = Lock()
        """Held while the counts change. `add` needs it only for every thousandth value, because `list.append` is atomic."""

    def add(self, value: float) -> None:
        """Count a value. A negative value, as the difference of two clocks can be, counts as 0."""
        self._pending.append(value)  # Sorting a thousand at once costs a quarter of finding the bucket of each.
        if len(self._pending) >= MOST_PENDING:
            with self._lock:
                self._count_pending()

    def add_many(self, value: float, times: int) -> None:
        """Count the same value `times` times."""
        value = max(value, 0.0)
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += times
            self._sum += value * times

    def value(self) -> HistogramValue:
        """Return what was counted so far."""
        with self._lock:
            self._count_pending()
            return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}

    def _count_pending(self) -> None:
        values = self._pending[:]
        del self._pending[: len(values)]  # Another thread may have added values since the line above. They stay.
        values.sort()
        ends = [bisect_right(values, bound) for bound in self._bounds]
        for bucket, (begin, end) in enumerate(pairwise([0, *ends, len(values)])):
            self._counts[bucket] += end - begin
        self._sum += sum(values[bisect_left(values, 0.0) :])


class HistogramValue(TypedDict):
    """The value of a histogram, as plain values for JSON.

    - `bounds`: the upper bounds of the buckets, in ascending order. A value that equals a bound counts in the bucket of this bound.
    - `counts`: the number of values in the bucket of each bound, then the number of values above the last bound.
    - `sum`: the sum of all values.
    """

    bounds: list[float]
    counts: list[int]
    sum: float


MOST_PENDING = 1_000


def is_histogram(value: object) -> bool:
    """Return whether a value is a `HistogramValue` with one count more than bounds."""
    try:
        found = msgspec.convert(value, HistogramValue)
    except msgspec.ValidationError:
        return False
    return len(found["counts"]) == len(found["bounds"]) + 1 > 1
