"""What a fetcher says of itself: outcomes of a run and metrics (A1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..publishers.clock import Clock
from .alignment import Alignment
from .bounded import ShardOutcome
from .emitter import Emitter
from .intake import Intake
from .shard_table import ShardEntry, ShardTable


def outcome_of(entry: ShardEntry, before: tuple[int, int], heads: Mapping[str, int | None]) -> ShardOutcome:
    """Where one shard stands after a run that began with `before` records and bytes emitted."""
    is_past = entry.key in heads
    return ShardOutcome(
        shard=entry.shard,
        state=entry.state,
        records=entry.records - before[0],
        payload_bytes=entry.payload_bytes - before[1],
        at_tip=entry.at_tip and not is_past,
        past_event_time=is_past,
        head_watermark=heads.get(entry.key),
        millis_behind_latest=None if entry.metrics.millis_behind_latest < 0 else entry.metrics.millis_behind_latest,
        silent_ms=entry.silence.observed_ms,
        tip_seen_ms=entry.tip_seen_ms,
        children=entry.children,
    )


def subtask_metrics(
    table: ShardTable, alignment: Alignment, emitter: Emitter, intake: Intake, clock: Clock
) -> dict[str, Any]:
    """The metrics of a subtask and of each of its shards, as plain values."""
    entries = list(table)
    return {
        "subtask": {
            "localWatermark": emitter.local_watermark.value,
            "globalWatermark": alignment.global_watermark,
            "holder": alignment.holder,
            "records": emitter.records,
            "budgetUsedBytes": intake.used_bytes,
            "shards": len(entries),
            "openShards": sum(entry.is_open for entry in entries),
            "idleShards": sum(entry.is_open and entry.idle for entry in entries),
            "heldShards": sum(entry.held_since is not None for entry in entries),
            "leftOutShards": sum(entry.left_behind for entry in entries),
            "alignmentLagMs": alignment.lag_ms,
            "lateAfterIdle": sum(entry.late_after_idle for entry in entries),
        },
        "shards": {entry.key: _shard_metrics(entry, clock) for entry in entries},
    }


def _shard_metrics(entry: ShardEntry, clock: Clock) -> dict[str, Any]:
    """Gauges of silent or held shards keep growing; they never vanish (A1)."""
    held_now = 0.0 if entry.held_since is None else clock.monotonic() - entry.held_since
    return {
        **{_camel(name): value for name, value in asdict(entry.metrics).items()},
        "records": entry.records,
        "bytes": entry.payload_bytes,
        "stage": entry.stage.name,
        "watermark": entry.state.watermark,
        "headWatermark": entry.head_watermark,
        "queuedRecords": entry.queued_records,
        "queuedBytes": entry.queued_bytes,
        "idle": entry.idle and entry.is_open,
        "silentMs": entry.silence.observed_ms,
        "leftOut": entry.left_behind,
        "lateAfterIdle": entry.late_after_idle,
        "held": entry.held_since is not None,
        "heldMs": round((entry.held_seconds + held_now) * 1000),
        "lastEmitAgeMs": None if entry.last_emit_ms is None else clock.now_ms() - entry.last_emit_ms,
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
