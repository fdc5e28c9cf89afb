"""The page of metrics in Prometheus's text format.

Written here and not by the library prometheus_client: for a page of 1,000 shards that takes ten times the CPU time. The tests
read every page with that library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.metrics_exporter import SubtaskHealth, SubtaskMetrics

from ..exported_metrics import (
    EXPORTED_SHARD_METRICS,
    EXPORTED_SUBTASK_METRICS,
    ExportedMetric,
    exported_sink_metrics,
    sink_values,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Row = tuple[str, dict[str, Any]]
"""The labels of a subtask or shard, and its metrics."""

_UP = "recordpublisher_subtask_up", "gauge", "1 while the event loop of the subtask responds"
_READY = "recordpublisher_subtask_ready", "gauge", "1 while the subtask reads and its checkpoints are stored"


def page_of(subtasks: Iterable[SubtaskMetrics], health: Iterable[SubtaskHealth]) -> str:
    """The page: each metric once, with a line for each subtask or shard."""
    healths, of_subtasks, of_shards = list(health), list[Row](), list[Row]()
    given = list(subtasks)
    for each in given:
        of_subtasks.append((f'subtask="{each.subtask}"', each.values))
        of_shards += [(_shard_labels(key, each.subtask), values) for key, values in each.shards.items()]
    lines = [
        *family(*_UP, [f'{{subtask="{each.subtask}"}} {int(each.responds)}' for each in healths]),
        *family(*_READY, [f'{{subtask="{each.subtask}"}} {int(each.is_ready)}' for each in healths]),
    ]
    of_sinks = [(f'subtask="{each.subtask}"', sink_values(each)) for each in given]
    tables = (
        (EXPORTED_SUBTASK_METRICS, of_subtasks),
        (exported_sink_metrics(given), of_sinks),
        (EXPORTED_SHARD_METRICS, of_shards),
    )
    for metrics, rows in tables:
        for metric in metrics:
            kind = "counter" if metric.type is MetricType.COUNTER else "gauge"
            lines += family(metric.prometheus_name, kind, metric.description, _samples(metric, rows))
    return "".join(lines)


def family(name: str, kind: str, description: str, samples: list[str]) -> list[str]:
    """A metric with its lines, each of which begins behind the name."""
    escaped = description.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n", *[f"{name}{sample}\n" for sample in samples]]


def _samples(metric: ExportedMetric, rows: list[Row]) -> list[str]:
    """What follows the name on each line; values that are not known have none."""
    source, number = metric.source, metric.number
    if metric.type is MetricType.TEXT:
        given = [(labels, values.get(source)) for labels, values in rows]
        return [f'{{{labels},{metric.stem}="{escaped_label(text)}"}} 1' for labels, text in given if text is not None]
    numbers = [(labels, number(values.get(source))) for labels, values in rows]
    return [f"{{{labels}}} {value!r}" for labels, value in numbers if value is not None]


def _shard_labels(key: str, subtask: int) -> str:
    stream, _, shard = key.rpartition("/")
    return f'stream="{escaped_label(stream)}",shard="{escaped_label(shard)}",subtask="{subtask}"'


def escaped_label(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
