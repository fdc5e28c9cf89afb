"""Translates the metrics of the code for monitoring systems: their names, in base units (seconds, bytes) (A1)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from recordpublisher.fetcher.metric_types import Metric, MetricType, SinkMetric
from recordpublisher.fetcher.monitoring.metrics_exporter import SubtaskMetrics
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.subtask_view import SUBTASK_METRICS

Scope = Literal["subtask", "shard", "sink"]

_STEMS = {
    "numberOfAggregatedRecords": "aggregated_records",
    "numberOfDeaggregatedRecords": "deaggregated_records",
    "millisBehindLatest": "behind_latest",
    "bytesRead": "read",
    "bytesPerRead": "last_read",
    "outstandingRecordsCount": "outstanding_records",
    "numRecordsOut": "written_records",
    "numBytesOut": "written",
    "numRecordsOutErrors": "failed_records",
}
"""Stems of metrics whose name contains a unit or a verb; the stems leave it out."""
_UNITS = {"ms": "seconds", "epoch ms": "timestamp_seconds", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    """One metric for other systems.

    - `source`: its name in `fetcher.metrics()`. `stem`: this name in lower case, without unit.
    - `unit`: seconds, timestamp_seconds (since 1970), bytes, or "".
    - `divisor`: the number by which source values are divided.
    """

    scope: Scope
    source: str
    stem: str
    unit: str
    divisor: int
    type: MetricType
    description: str

    @property
    def prometheus_name(self) -> str:
        """The name by Prometheus's conventions, with unit and `_total`. The name of a text ends in `_info`."""
        parts = ["recordpublisher", self.scope, self.stem]
        if self.unit and not self.stem.endswith(self.unit):
            parts.append(self.unit)
        endings = {MetricType.COUNTER: ["total"], MetricType.TEXT: ["info"]}
        return "_".join(parts + endings.get(self.type, []))

    @property
    def opentelemetry_name(self) -> str:
        """The name by OpenTelemetry's conventions, without unit; the standard name if there is one."""
        if (self.scope, self.source) == ("shard", "records"):
            return "messaging.client.consumed.messages"
        ending = "_timestamp" if self.unit == "timestamp_seconds" else ""
        is_duration = self.type is MetricType.COUNTER and self.unit == "seconds"
        return f"recordpublisher.{self.scope}.{self.stem}{'_time' if is_duration else ending}"

    @property
    def opentelemetry_unit(self) -> str:
        """The unit in the notation of UCUM."""
        if (self.scope, self.source) == ("shard", "records"):
            return "{message}"
        return {"seconds": "s", "timestamp_seconds": "s", "bytes": "By"}.get(self.unit, "1")

    def number(self, value: Any) -> int | float | None:
        """Return a value in the exported unit, or None if it is not known. Not for texts."""
        if not is_known(self.source, value):
            return None
        return int(value) if self.divisor == 1 else value / self.divisor


def is_known(name: str, value: Any) -> bool:
    """Return whether a value of `fetcher.metrics()` is known. As in Flink, `millisBehindLatest` is -1 before the first read."""
    return value is not None and not (name == "millisBehindLatest" and value < 0)


def _exported(scope: Scope, metric: Metric[Any] | SinkMetric) -> ExportedMetric:
    words = re.sub(r"([A-Z])", r"_\1", metric.name.removesuffix("Ms")).lower()
    unit = _UNITS.get(metric.unit, "")
    divisor = 1000 if metric.unit in ("ms", "epoch ms") else 1
    stem = _STEMS.get(metric.name, words)
    return ExportedMetric(scope, metric.name, stem, unit, divisor, metric.type, metric.description)


EXPORTED_SUBTASK_METRICS = tuple(_exported("subtask", metric) for metric in SUBTASK_METRICS)
EXPORTED_SHARD_METRICS = tuple(_exported("shard", metric) for metric in SHARD_METRICS)


class Origin(NamedTuple):
    """The origin of values: a subtask and its sink, a shard that the subtask reads (if `shard` is not empty), or a producer."""

    subtask: int
    stream: str = ""
    shard: str = ""
    producer: str = ""


Row = tuple[Origin, dict[str, Any]]
"""The values of one origin, by the names of its metrics."""


def shard_rows(subtask: SubtaskMetrics) -> Iterator[Row]:
    """Return the rows of the shards of a subtask."""
    for key, values in subtask.shards.items():
        stream, _, shard = key.rpartition("/")
        yield Origin(subtask.subtask, stream, shard), values


def exported_tables(subtasks: Sequence[SubtaskMetrics]) -> list[tuple[Iterable[ExportedMetric], list[Row]]]:
    """Return the metrics of subtasks, of their sinks (each metric once), and of shards, with the rows of each table.

    A program that only produces has those of sinks alone.
    """
    jobs = [each for each in subtasks if not each.producer]
    of_sinks = {metric.name: _exported("sink", metric) for each in subtasks for metric in each.sink}
    in_sinks = [
        (Origin(each.subtask, producer=each.producer), {one.name: one.value for one in each.sink}) for each in subtasks
    ]
    if subtasks and not jobs:
        return [(of_sinks.values(), in_sinks)]
    return [
        (EXPORTED_SUBTASK_METRICS, [(Origin(each.subtask), each.values) for each in jobs]),
        (of_sinks.values(), in_sinks),
        (EXPORTED_SHARD_METRICS, [row for each in jobs for row in shard_rows(each)]),
    ]
