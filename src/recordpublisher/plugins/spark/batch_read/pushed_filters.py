"""PushedFilters: what a DataFrame's filters mean for a batch read. They choose shards, and narrow what is read of each by arrival time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard

from .arrivals import Arrivals
from .batch_plan import ShardRange

ARRIVAL = "approximateArrivalTimestamp"
_SHARD_COLUMNS: dict[str, Callable[[Shard], str]] = {
    "stream": lambda shard: shard.stream,
    "shardId": lambda shard: shard.shard_id,
}
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    In: lambda found, values: found in values,
    GreaterThan: lambda found, value: found.encode() > value.encode(),  # Spark compares bytes
    GreaterThanOrEqual: lambda found, value: found.encode() >= value.encode(),
    LessThan: lambda found, value: found.encode() < value.encode(),
    LessThanOrEqual: lambda found, value: found.encode() <= value.encode(),
    StringStartsWith: lambda found, value: found.startswith(value),
    StringEndsWith: lambda found, value: found.endswith(value),
    StringContains: lambda found, value: value in found,
    IsNotNull: lambda found, _: True,
    IsNull: lambda found, _: False,
}


class PushedFilters:
    """Called by Spark as `pushFilters` of a reader: keeps what the filters mean, and returns those that Spark still has to apply.

    Filters on stream and shard are decided here. Those on the arrival time are returned: reading less by them is all that is done here.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)
    """Spark refuses a reader whose `pushFilters` has another function where `spark.sql.python.filterPushdown.enabled` is false, its
    default. So this is no method: where that is false, Spark does not call it, and filters everything itself."""

    def __init__(self) -> None:
        self._of_shards: list[Filter] = []
        self.arrivals = Arrivals()

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        """Keep the filters that choose shards; returns all others."""
        left = []
        for each in filters:
            if _is_of_shard(each):
                self._of_shards.append(each)
            else:
                self.arrivals = self.arrivals.overlap(_arrivals(each))
                left.append(each)
        return left

    def narrowed(self, parts: Sequence[ShardRange]) -> list[ShardRange]:
        """The parts that may have matching records, with their starts and arrival times narrowed."""
        if self.arrivals.is_empty:
            return []
        return [
            replace(part, start=_later(part.start, self.arrivals.start_ms), arrivals=self.arrivals)
            for part in parts
            if all(_matches(each, part.shard) for each in self._of_shards)
        ]


def _is_of_shard(given: Filter) -> bool:
    inner = given.child if isinstance(given, Not) else given
    if type(inner) not in _COMPARISONS or _column(inner) not in _SHARD_COLUMNS:
        return False
    if isinstance(inner, In):
        return all(isinstance(value, str) for value in inner.value)
    return isinstance(getattr(inner, "value", ""), str)


def _matches(given: Filter, shard: Shard) -> bool:
    if isinstance(given, Not):
        return not _matches(given.child, shard)
    return _COMPARISONS[type(given)](_SHARD_COLUMNS[_column(given)](shard), getattr(given, "value", None))


def _column(given: Filter) -> str:
    return ".".join(getattr(given, "attribute", ()))


def _arrivals(given: Filter) -> Arrivals:
    """The times that a filter leaves; all of them for a filter that does not tell."""
    if _column(given) != ARRIVAL or isinstance(given, Not):
        return Arrivals()
    value = getattr(given, "value", None)
    times = value if isinstance(given, In) else (value,)
    if not times or not all(isinstance(time, datetime) and time.tzinfo is not None for time in times):
        return Arrivals()
    first, last = _millis(min(times)), _millis(max(times)) + 1
    if isinstance(given, (EqualTo, EqualNullSafe, In)):
        return Arrivals(first, last)
    if isinstance(given, (GreaterThan, GreaterThanOrEqual)):
        return Arrivals(from_ms=first)
    if isinstance(given, (LessThan, LessThanOrEqual)):
        return Arrivals(until_ms=last)
    return Arrivals()


def _millis(time: datetime) -> int:
    """Epoch ms, rounded down."""
    return int(time.timestamp() // 1 * 1000) + time.microsecond // 1000


def _later(start: StartingPosition, from_ms: int | None) -> StartingPosition:
    """The later of two starts. A record's number does not tell its time, so a start at one stays."""
    is_oldest = start.type is PositionType.TRIM_HORIZON
    if from_ms is None or not (is_oldest or start.type is PositionType.AT_TIMESTAMP):
        return start
    return StartingPosition.at_timestamp(max(from_ms, start.timestamp_ms or 0))
