"""The tables of metrics as monitoring systems know them: names in base units (seconds, bytes), from the tables of the code (A1)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

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
"""Of metrics whose name contains a unit or a verb: without it."""
_UNITS = {"ms": "seconds", "epoch ms": "timestamp_seconds", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    """One metric for other systems.

    - `source`: its name in `fetcher.metrics()`; `stem`: the same in lower case, without unit.
    - `unit`: seconds, timestamp_seconds (since 1970), bytes, or none.
    - `divisor`: source values are divided by it.
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
        """The name by Prometheus's conventions, with unit and `_total`; that of a text ends in `_info`."""
        parts = ["recordpublisher", self.scope, self.stem]
        if self.unit and not self.stem.endswith(self.unit):
            parts.append(self.unit)
        endings = {MetricType.COUNTER: ["total"], MetricType.TEXT: ["info"]}
        return "_".join(parts + endings.get(self.type, []))

    @property
    def opentelemetry_name(self) -> str:
        """The name by OpenTelemetry's conventions, without unit; the standard one where there is one."""
        if (self.scope, self.source) == ("shard", "records"):
            return "messaging.client.consumed.messages"
        ending = "_timestamp" if self.unit == "timestamp_seconds" else ""
        is_duration = self.type is MetricType.COUNTER and self.unit == "seconds"
        return f"recordpublisher.{self.scope}.{self.stem}{'_time' if is_duration else ending}"

    @property
    def opentelemetry_unit(self) -> str:
        """The unit by UCUM."""
        if (self.scope, self.source) == ("shard", "records"):
            return "{message}"
        return {"seconds": "s", "timestamp_seconds": "s", "bytes": "By"}.get(self.unit, "1")

    def number(self, value: Any) -> int | float | None:
        """A value in the exported unit; None: not known. Not for texts."""
        if not is_known(self.source, value):
            return None
        return int(value) if self.divisor == 1 else value / self.divisor


def is_known(name: str, value: Any) -> bool:
    """Whether a value of `fetcher.metrics()` is known: `millisBehindLatest` is -1 before the first read, as in Flink."""
    return value is not None and not (name == "millisBehindLatest" and value < 0)


def _exported(scope: Scope, metric: Metric[Any] | SinkMetric) -> ExportedMetric:
    words = re.sub(r"([A-Z])", r"_\1", metric.name.removesuffix("Ms")).lower()
    unit = _UNITS.get(metric.unit, "")
    divisor = 1000 if metric.unit in ("ms", "epoch ms") else 1
    stem = _STEMS.get(metric.name, words)
    return ExportedMetric(scope, metric.name, stem, unit, divisor, metric.type, metric.description)


EXPORTED_SUBTASK_METRICS = tuple(_exported("subtask", metric) for metric in SUBTASK_METRICS)
EXPORTED_SHARD_METRICS = tuple(_exported("shard", metric) for metric in SHARD_METRICS)


def exported_sink_metrics(subtasks: Iterable[SubtaskMetrics]) -> list[ExportedMetric]:
    """The metrics that the sinks of these subtasks have, each once."""
    found = {metric.name: metric for each in subtasks for metric in each.sink}
    return [_exported("sink", metric) for metric in found.values()]


def sink_values(subtask: SubtaskMetrics) -> dict[str, Any]:
    """The values of its sink by name."""
    return {metric.name: metric.value for metric in subtask.sink}
