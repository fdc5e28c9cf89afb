"""The progress of a query: figures for `lastProgress`, and a log line for each planned batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.publishers.properties.times import iso_time

from .offset import EMIT_NOTHING, BatchOffset, ShardOffset
from .planned_watermark import is_held

_OF_A_BATCH = {
    "batch", "reading", "tasks", "lastBatchRecords", "lastBatchBytes", "recordsPerSecond", "bytesPerSecond",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is: where its last batch ended, and how much that batch read in how many seconds.

    While a quiet stream is watched, no batch follows. Then `batch`, and the number of `tasks`, are those of the last batch.
    """

    reached: BatchOffset
    tasks: int
    records: int
    bytes: int
    seconds: float
    now_ms: int

    @classmethod
    def after(cls, previous: BatchOffset, offset: BatchOffset, now_ms: int, *, is_planned: bool) -> QueryProgress:
        """Return the progress after the batch that `previous` planned and that ended at `offset`.

        - `is_planned`: whether the next batch begins there now.
        """
        shown = offset if is_planned else replace(offset, batch=previous.batch)
        tasks = len((offset if is_planned else previous).tasks())
        records, size = offset.records - previous.records, offset.bytes - previous.bytes
        return cls(shown, tasks, records, size, max(now_ms - previous.planned_ms, 1) / 1000, now_ms)

    def figures(self) -> dict[str, Any]:
        """Return counts and rates as plain values."""
        offset = self.reached
        entries = offset.shards.values()
        behind = [lag for entry in entries if not entry.state.ended and (lag := self._lag_ms(entry)) is not None]
        return {
            "batch": offset.batch,
            "streams": sorted({entry.shard.stream for entry in entries}),
            "shards": len(offset.shards),
            "reading": sum(entry.task is not None for entry in entries),
            "tasks": self.tasks,
            "idle": sum(entry.idle for entry in entries),
            "held": sum(is_held(entry, offset.emit_limit) for entry in entries),
            "atTip": sum(entry.seen.at_tip for entry in entries),
            "lastBatchRecords": self.records,
            "lastBatchBytes": self.bytes,
            "recordsPerSecond": round(self.records / self.seconds, 1),
            "bytesPerSecond": round(self.bytes / self.seconds, 1),
            "records": offset.records,
            "bytes": offset.bytes,
            "millisBehindLatest": max(behind, default=None),
            "minMillisBehindLatest": min(behind, default=None),
            "avgMillisBehindLatest": round(sum(behind) / len(behind)) if behind else None,
            "globalWatermark": offset.global_watermark,
        }

    def state(self) -> dict[str, Any]:
        """Return the figures that say how far the query is, without the figures of single batches."""
        return {name: value for name, value in self.figures().items() if name not in _OF_A_BATCH}

    def _lag_ms(self, entry: ShardOffset) -> int | None:
        """Return the age of the shard's oldest row that is not in the sink (ms); None while nothing is known.

        Spark asks for a plan when the rows of the batch before are in the sink, so the missing rows were not read. The next row is not
        older than the last one that was read. Both clocks may differ, so the distance of the last response, and the time since the batch
        was planned, bound the result.
        """
        behind_ms, arrival_ms = entry.seen.behind_ms, entry.state.arrival_ms
        if behind_ms is None or entry.seen.at_tip:
            return behind_ms
        elapsed_ms = round(self.seconds * 1000)
        since_ms = elapsed_ms if arrival_ms is None else self.now_ms - arrival_ms - behind_ms
        return behind_ms + min(max(0, since_ms), elapsed_ms)

    def line(self) -> str:
        """Return a log line about what the last batch read, and what this one will read."""
        offset, figures = self.reached, self.figures()
        counts = [f"{name} {figures[name]}" for name in ("shards", "reading", "tasks", "idle", "held")]
        behind = figures["millisBehindLatest"]
        return (
            f"batch {offset.batch} of query {offset.query}: {', '.join(counts)}, at tip {figures['atTip']}; "
            f"furthest behind {'unknown' if behind is None else f'{behind / 1000:.1f} s'}; "
            f"global watermark {_time(offset.global_watermark)}, emit limit {_limit(offset.emit_limit)}; "
            f"the last batch had {self.records} records and was planned {self.seconds:.1f} s ago"
        )


def _limit(emit_limit: int | None) -> str:
    if emit_limit is None:
        return "none"
    return "unknown, reading first watermarks only" if emit_limit == EMIT_NOTHING else _time(emit_limit)


def _time(millis: int | None) -> str:
    return "unknown" if millis is None else iso_time(millis)
