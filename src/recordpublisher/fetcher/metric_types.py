"""MetricType, Metric and SinkMetric: the kinds of metrics, one of a subtask or shard, and one that a sink has of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")


class MetricType(StrEnum):
    """The kind of values of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    FLAG = "boolean"
    TEXT = "text"


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


@dataclass(frozen=True, slots=True)
class Metric(Generic[V]):
    """One metric of a subtask or a shard (`V`)."""

    name: str
    type: MetricType
    unit: str
    description: str
    read: Callable[[V], Any]
