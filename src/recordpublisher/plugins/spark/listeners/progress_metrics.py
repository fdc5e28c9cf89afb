"""The figures of a query as metrics: names in base units, as those of a job (A1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.plugins.metrics.prometheus.text_format import escaped_label, family


@dataclass(frozen=True, slots=True)
class ProgressMetric:
    """A figure of the progress, and its metric; the figure is divided by `divisor`."""

    figure: str
    name: str
    description: str
    divisor: int = 1
    kind: str = "gauge"


PROGRESS_METRICS = (
    ProgressMetric("batch", "batch", "number of the last planned batch"),
    ProgressMetric("shards", "shards", "shards of the query"),
    ProgressMetric("reading", "reading_shards", "shards that the batch reads"),
    ProgressMetric("idle", "idle_shards", "shards that the watermark does not wait for"),
    ProgressMetric("held", "held_shards", "shards that alignment holds"),
    ProgressMetric("atTip", "at_tip_shards", "shards whose last read reached the tip"),
    ProgressMetric("tasks", "tasks", "tasks of the batch"),
    ProgressMetric("records", "records_total", "records so far", kind="counter"),
    ProgressMetric("bytes", "bytes_total", "bytes so far, before de-aggregation", kind="counter"),
    ProgressMetric("lastBatchRecords", "last_batch_records", "records of the last batch that ended"),
    ProgressMetric("lastBatchBytes", "last_batch_bytes", "bytes of the last batch that ended"),
    ProgressMetric("recordsPerSecond", "records_per_second", "records of that batch by the time since it was planned"),
    ProgressMetric("bytesPerSecond", "bytes_per_second", "bytes of that batch by the time since it was planned"),
    ProgressMetric(
        "millisBehindLatest", "behind_latest_seconds", "how far the shard that is furthest behind was", 1000
    ),
    ProgressMetric(
        "minMillisBehindLatest", "behind_latest_min_seconds", "how far the shard that is least behind was", 1000
    ),
    ProgressMetric(
        "avgMillisBehindLatest", "behind_latest_avg_seconds", "how far the shards were behind, average", 1000
    ),
    ProgressMetric("globalWatermark", "global_watermark_timestamp_seconds", "the global watermark", 1000),
    ProgressMetric(
        "timeToRetentionLossMs",
        "time_to_retention_loss_seconds",
        "until unread records of the worst shard may be past retention",
        1000,
    ),
    ProgressMetric("inputRowsPerSecond", "input_rows_per_second", "rows a second, as Spark counts"),
    ProgressMetric("batchDurationMs", "batch_duration_seconds", "how long the last batch took", 1000),
)
OUTAGE = "recordpublisher_spark_outage", "gauge", "1 while a service is away"
Sources = Iterable[tuple[str, Sequence[Mapping[str, Any]]]]
"""By the query's name: the figures of each source."""


def page_of_queries(queries: Sources) -> str:
    """The page of metrics. A figure that is not known has no line."""
    rows = [
        (f'query="{escaped_label(name)}",source="{number}"', figures)
        for name, sources in queries
        for number, figures in enumerate(sources)
    ]
    lines = family(*OUTAGE, [f"{{{labels}}} {int('outage' in figures)}" for labels, figures in rows])
    for metric in PROGRESS_METRICS:
        known = [
            f"{{{labels}}} {value if metric.divisor == 1 else value / metric.divisor!r}"
            for labels, figures in rows
            if isinstance(value := figures.get(metric.figure), int | float)
        ]
        if known:
            lines += family(f"recordpublisher_spark_{metric.name}", metric.kind, metric.description, known)
    return "".join(lines)
