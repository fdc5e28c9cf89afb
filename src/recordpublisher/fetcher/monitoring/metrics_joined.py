"""Metrics of a subtask and of each of its shards, as plain values (A1)."""

from __future__ import annotations

from typing import Any

from recordpublisher.publishers.clock import Clock

from .metric_views import ShardView
from .metrics import OF_SHARD, OF_SUBTASK, shown
from .subtask_view import SubtaskView


def metrics_of(subtask: SubtaskView, clock: Clock) -> dict[str, Any]:
    """`{"subtask": {...}, "shards": {"stream/shard-id": {...}}}`; costs no call."""
    now_ms, now, board = clock.now_ms(), clock.monotonic(), subtask.monitor.board
    retention = subtask.monitor.retention
    views = [
        ShardView(entry, now_ms, now, retention.of(entry.shard.stream), entry.key in board) for entry in subtask.entries
    ]
    return {
        "subtask": shown(OF_SUBTASK, subtask),
        "shards": {view.entry.key: shown(OF_SHARD, view) for view in views},
    }
