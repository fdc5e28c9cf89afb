"""Declares the metrics of workers, shards and sinks.

`@metric(GAUGE, "ms")` makes a method a metric.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

from recordpublisher.publishers.histogram import HistogramValue

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


def is_number(value: object) -> bool:
    """Return whether a value is a number, as the value of a counter or gauge must be."""
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
    """One metric of a worker or a shard. A class declares its metrics as class attributes of this type (`metrics_of`).

    - `attribute`: the name in snake_case. `name` is the same in camelCase.
    - `read`: returns the value from a view, which is an object with the values of one moment.
    - `shown`: the title of a counter in the dashboard and in `lag --watch`.
    - `loss`: what it means for the user's records that the counter is not 0.
    """

    def __init__(
        self,
        attribute: str,
        kind: MetricType,
        unit: str,
        description: str,
        read: Callable[[V], Any],
        shown: str = "",
        loss: str = "",
    ) -> None:
        self.name = camel_case(attribute)
        self.type = kind
        self.unit = unit
        self.description = description
        self.read = read
        self.shown = shown
        self.loss = loss


def camel_case(attribute: str) -> str:
    """Return the name of a metric in camelCase, from the name of its attribute in snake_case."""
    first, *words = attribute.split("_")
    return first + "".join(word.capitalize() for word in words)


def metric(kind: MetricType, unit: str = "") -> Callable[[Callable[[V], T]], MetricProperty[V, T]]:
    """Return a decorator that makes a method a metric: a property of the same name. The docstring describes the metric."""
    return lambda method: MetricProperty(kind, unit, method)


class MetricProperty(Metric[V], Generic[V, T]):
    """A metric that is also a property. Read on an instance, it returns the value. Read on the class, it returns the metric."""

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
