"""MetricType, Metric and SinkMetric: the kinds of metrics, one of a subtask or shard, and one that a sink has of its own.

`@metric(GAUGE, "ms")` makes a metric of a method.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

V = TypeVar("V")
T = TypeVar("T")


class MetricType(StrEnum):
    """The kind of values of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    FLAG = "boolean"
    TEXT = "text"


COUNTER, GAUGE, FLAG, TEXT = MetricType


class SinkMetric(msgspec.Struct, frozen=True):
    """One metric of a sink at one moment.

    - `name`: as the sink's documentation names it, in camelCase; `type`: counter or gauge.
    - `unit`: `ms` and `bytes` are converted for each monitoring system; any other is a word for people.
    - `value`: None while it is not known.
    """

    name: str
    type: MetricType
    unit: str
    description: str
    value: int | float | None


class Metric(Generic[V]):
    """One metric of a subtask or a shard, which are read as `V`. An attribute of the class `V` with this type is one, too."""

    def __init__(self, attribute: str, kind: MetricType, unit: str, description: str, read: Callable[[V], Any]) -> None:
        """`attribute`: its name in snake_case."""
        self.name = camel_case(attribute)
        self.type = kind
        self.unit = unit
        self.description = description
        self.read = read


def camel_case(attribute: str) -> str:
    """Return the name of the metric of an attribute in snake_case."""
    first, *words = attribute.split("_")
    return first + "".join(word.capitalize() for word in words)


def metric(kind: MetricType, unit: str = "") -> Callable[[Callable[[V], T]], MetricProperty[V, T]]:
    """Makes a metric of a method: a property with its name, whose docstring is the description."""
    return lambda method: MetricProperty(kind, unit, method)


class MetricProperty(Metric[V], Generic[V, T]):
    """A metric that is an attribute of its view."""

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
    """The metrics of a class, in order."""
    return tuple(attribute for attribute in vars(view).values() if isinstance(attribute, Metric))
