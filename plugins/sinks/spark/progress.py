"""One line for a person about each planned batch."""

from __future__ import annotations

from datetime import UTC, datetime

from .offset import NOTHING, Offset
from .planning import is_held, runnable


def line(start: Offset, offset: Offset) -> str:
    """What the batch before brought and what this one will do."""
    entries = offset.shards.values()
    counts = {
        "shards": len(offset.shards),
        "reading": len(runnable(offset)),
        "tasks": offset.tasks,
        "idle": sum(entry.idle for entry in entries),
        "held": sum(is_held(entry, offset.bound) for entry in entries),
        "at tip": sum(entry.at_tip for entry in entries),
    }
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    brought = sum(entry.last_records for entry in entries)
    took = (offset.planned_ms - start.planned_ms) / 1000
    return (
        f"batch {offset.batch} of query {offset.query}: {told}; global watermark "
        f"{_time(offset.global_watermark)}, bound {_bound(offset.bound)}; "
        f"the batch before brought {brought} records, {took:.1f} s ago"
    )


def _bound(bound: int | None) -> str:
    if bound is None:
        return "none"
    return "unknown, looking at the heads" if bound == NOTHING else _time(bound)


def _time(millis: int | None) -> str:
    if millis is None:
        return "unknown"
    try:
        return datetime.fromtimestamp(millis / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms"
