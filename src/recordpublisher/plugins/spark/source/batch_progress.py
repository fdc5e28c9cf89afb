"""The progress of a query: figures for `lastProgress`, and a log line for each planned batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .batch_offset import EMIT_NOTHING, BatchOffset
from .shard_grouping import is_held, readable_shards


def progress_figures(offset: BatchOffset) -> dict[str, Any]:
    """Counts of a planned batch and of the one before, as plain values."""
    entries = offset.shards.values()
    behind = [entry.behind_ms for entry in entries if entry.behind_ms is not None and not entry.state.ended]
    return {
        "batch": offset.batch,
        "shards": len(offset.shards),
        "reading": len(readable_shards(offset)),
        "tasks": offset.tasks,
        "idle": sum(entry.idle for entry in entries),
        "held": sum(is_held(entry, offset.emit_limit) for entry in entries),
        "atTip": sum(entry.at_tip for entry in entries),
        "lastBatchRecords": sum(entry.last_records for entry in entries),
        "records": offset.records,
        "millisBehindLatest": max(behind, default=None),
        "globalWatermark": offset.global_watermark,
    }


def progress_line(start: BatchOffset, offset: BatchOffset) -> str:
    """What the last batch read, and what this one will read."""
    figures = progress_figures(offset)
    counts = {
        "shards": "shards",
        "reading": "reading",
        "tasks": "tasks",
        "idle": "idle",
        "held": "held",
        "at tip": "atTip",
    }
    seconds_ago = (offset.planned_ms - start.planned_ms) / 1000
    behind = figures["millisBehindLatest"]
    return (
        f"batch {offset.batch} of query {offset.query}: {', '.join(f'{name} {figures[key]}' for name, key in counts.items())}; "
        f"furthest behind {'unknown' if behind is None else f'{behind / 1000:.1f} s'}; "
        f"global watermark {_time(offset.global_watermark)}, emit limit {_limit(offset.emit_limit)}; "
        f"the last batch had {figures['lastBatchRecords']} records and was planned {seconds_ago:.1f} s ago"
    )


def _limit(emit_limit: int | None) -> str:
    if emit_limit is None:
        return "none"
    return "unknown, reading first watermarks only" if emit_limit == EMIT_NOTHING else _time(emit_limit)


def _time(millis: int | None) -> str:
    if millis is None:
        return "unknown"
    try:
        return datetime.fromtimestamp(millis / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms"
