"""Declares metrics: those of a worker or a shard, and those of a sink; and counts the values of a histogram.

`@metric(GAUGE, "ms")` makes a method a metric.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from threading import Lock
from typing import Any, Generic, Self, TypedDict, TypeVar, overload

import msgspec

V = TypeVar("V")


T = TypeVar("T")


class MetricType(StrEnum):
    """The kind of a metric's values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    FLAG = "boolean"
    TEXT = "text"
    HISTOGRAM = "histogram"


COUNTER, GAUGE, FLAG, TEXT, HISTOGRAM = MetricType

DURATIONS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000)
"""The bounds of histograms of durations (ms): from the fastest handler to the default of `flink.job.max.outage`."""


class HistogramValue(TypedDict):
    """The value of a histogram: plain JSON.

    - `bounds`: the upper bounds of the buckets, in ascending order. A bound belongs to its bucket.
    - `counts`: the number of values in the bucket of each bound, then the number of values above the last bound.
    - `sum`: the sum of all values.
    """

    bounds: list[float]
    counts: list[int]
    sum: float


class Histogram:
    """Counts values, such as durations in ms, by buckets. It never forgets: a monitoring system takes the difference of two moments.

    Any thread may call it.

    - `bounds`: the upper bounds of the buckets, in ascending order.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_pending", "_sum")

    def __init__(self, bounds: Sequence[float] = DURATIONS_MS) -> None:
        self._bounds = [float(bound) for bound in bounds]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._pending: list[float] = []
        self._lock = Lock()
        """Held while the counts change. `add` takes it once in a thousand values, because `list.append` is atomic."""

    def add(self, value: float) -> None:
        """Count a value. A negative one, from two clocks that differ, counts as 0."""
        self._pending.append(value)  # Sorting a thousand at once costs a quarter of finding the bucket of each.
        if len(self._pending) >= MOST_PENDING:
            with self._lock:
                self._count_pending()

    def add_many(self, value: float, times: int) -> None:
        """Count a value `times` times."""
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


MOST_PENDING = 1_000


def is_histogram(value: object) -> bool:
    """Return whether a value is a `HistogramValue` whose parts fit together."""
    try:
        found = msgspec.convert(value, HistogramValue)
    except msgspec.ValidationError:
        return False
    return len(found["counts"]) == len(found["bounds"]) + 1 > 1


def is_number(value: object) -> bool:
    """Return whether a value is a number, as counters and gauges have."""
    return isinstance(value, int | float)


class SinkMetric(msgspec.Struct, frozen=True):
    """One metric of a sink at one moment.

    - `name`: the name in the sink's documentation, in camelCase.
    - `type`: counter, gauge or histogram.
    - `unit`: `ms` and `bytes` are converted for each monitoring system. Any other unit is a word for people.
    - `value`: a number, or for a histogram what `rp.Histogram.value` returns; None while the value is not known.
    """

    name: str
    type: MetricType
    unit: str
    description: str
    value: int | float | HistogramValue | None


class Metric(Generic[V]):
    """One metric of a worker or a shard. `read` returns its value from a view, which has the values at one moment.

    A class attribute with this type is a metric of that class. `attribute` is the name of the metric in snake_case.
    """

    def __init__(self, attribute: str, kind: MetricType, unit: str, description: str, read: Callable[[V], Any]) -> None:
        self.name = camel_case(attribute)
        self.type = kind
        self.unit = unit
        self.description = description
        self.read = read


def camel_case(attribute: str) -> str:
    """Return the metric's name in camelCase for an attribute in snake_case."""
    first, *words = attribute.split("_")
    return first + "".join(word.capitalize() for word in words)


def metric(kind: MetricType, unit: str = "") -> Callable[[Callable[[V], T]], MetricProperty[V, T]]:
    """Make a method a metric: a property of the same name, whose description is the method's docstring."""
    return lambda method: MetricProperty(kind, unit, method)


class MetricProperty(Metric[V], Generic[V, T]):
    """A metric that is also a property: the attribute of a view has the metric's value."""

    def __init__(self, kind: MetricType, unit: str, read: Callable[[V], T]) -> None:
        text = " ".join((read.__doc__ or "").split()).removesuffix(".")
        description = text if text[1:2].isupper() else text[:1].lower() + text[1:]
        super().__init__(read.__name__, kind, unit, description, read)
        self._read = read

    @overload
    def __get__(self, view: None, owner: type[V]) -> Self: ...
    @overload
    def __get__(self, view: V, owner: type[V]) -> T: ...
    def __get__(self, view: V | None, owner: type[V]) -> Self | T:
        return self if view is None else self._read(view)


def metrics_of(view: type[V]) -> tuple[Metric[V], ...]:
    """Return the metrics of a class, in the order in which they are declared."""
    return tuple(attribute for attribute in vars(view).values() if isinstance(attribute, Metric))
