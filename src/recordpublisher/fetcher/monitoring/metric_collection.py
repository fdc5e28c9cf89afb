"""collect_metrics: reads every metric of a subtask and its shards (A1)."""

from typing import Any

from recordpublisher.publishers.clock import Clock

from ..metric_types import Metric, V
from .shard_view import SHARD_METRICS, ShardView
from .subtask_view import SUBTASK_METRICS, SubtaskView


def metric_values(table: tuple[Metric[V], ...], view: V) -> dict[str, Any]:
    """Every metric of one scope, as plain values."""
    return {metric.name: metric.read(view) for metric in table}


def collect_metrics(subtask: SubtaskView, clock: Clock) -> dict[str, Any]:
    """`{"subtask": {...}, "shards": {"stream/shard-id": {...}}}`; needs no call to the service."""
    now_ms, now, alarms = clock.now_ms(), clock.monotonic(), subtask.alarm_monitor.active_alarms
    retention = subtask.retention
    views = [
        ShardView(
            entry,
            now_ms,
            now,
            retention.of(entry.shard.stream),
            entry.key in alarms,
            subtask.intake.why_blocked(entry),
        )
        for entry in subtask.entries
    ]
    return {
        "subtask": metric_values(SUBTASK_METRICS, subtask),
        "shards": {view.entry.key: metric_values(SHARD_METRICS, view) for view in views},
    }
