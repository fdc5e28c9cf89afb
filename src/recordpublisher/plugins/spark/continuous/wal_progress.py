"""The progress of a query in mode CONTINUOUS: figures of its batches and of its fetcher, under the names of mode BATCH."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..source.retention_check import RetentionLeft
from .wal_entry import WalEntry
from .wal_offset import WalOffset

_OF_LAST_BATCH = ("lastBatchRecords", "lastBatchBytes", "recordsPerSecond", "bytesPerSecond")


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    batch: int
    records: int
    bytes: int
    planned_ms: int


class BatchFigures:
    """Owns the figures of the last planned batch, and of the last one that has ended. Times are epoch ms."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self._planned: _PlannedBatch | None = None
        self._of_last: dict[str, object] = dict.fromkeys(_OF_LAST_BATCH)

    def note_ended(self, batch: int, now_ms: int) -> None:
        """This batch has ended, if it was planned here and that was not noted before."""
        last = self._planned
        if last is None or last.batch != batch:
            return
        self._planned = None
        seconds = max(now_ms - last.planned_ms, 1) / 1000
        rates = (round(last.records / seconds, 1), round(last.bytes / seconds, 1))
        self._of_last = dict(zip(_OF_LAST_BATCH, (last.records, last.bytes, *rates), strict=True))
        self.values |= self._of_last

    def note_planned(self, end: WalOffset, taken: Sequence[WalEntry], waiting: int, now_ms: int) -> None:
        """A batch of these entries is planned; `waiting` records are left for the next."""
        rows, payload = sum(entry.rows for entry in taken), sum(entry.payload for entry in taken)
        self._planned = _PlannedBatch(end.batch, rows, payload, now_ms)
        self.values = {
            "batch": end.batch,
            "entry": end.entry,
            "files": sum(entry.file is not None for entry in taken),
            **self._of_last,
            "records": end.records,
            "bytes": end.bytes,
            "waitingRecords": waiting,
            "oldestMs": now_ms - min((entry.written_ms for entry in taken), default=now_ms),
            "globalWatermark": max((entry.watermark for entry in taken if entry.watermark is not None), default=None),
        }


def fetcher_figures(metrics: Mapping[str, Any], retention_ms: Callable[[str], int | None]) -> dict[str, object]:
    """The figures of a fetcher, from its metrics and the retention of each stream. Shards that were read to their end do not count."""
    shards = {key: shard for key, shard in metrics["shards"].items() if shard["stage"] != "ENDED"}
    behind = [shard["millisBehindLatest"] for shard in shards.values() if shard["millisBehindLatest"] >= 0]
    worst = least_retention_left(metrics, retention_ms)
    return {
        "streams": sorted({_stream_of(key) for key in shards}),
        "shards": len(shards),
        "reading": sum(shard["stage"] == "READING" and not shard["held"] for shard in shards.values()),
        "idle": sum(shard["idle"] for shard in shards.values()),
        "held": sum(shard["held"] for shard in shards.values()),
        "atTip": behind.count(0),
        "millisBehindLatest": max(behind, default=None),
        "minMillisBehindLatest": min(behind, default=None),
        "avgMillisBehindLatest": round(sum(behind) / len(behind)) if behind else None,
        "timeToRetentionLossMs": None if worst is None else worst.left_ms,
    }


def least_retention_left(metrics: Mapping[str, Any], retention_ms: Callable[[str], int | None]) -> RetentionLeft | None:
    """Of a fetcher's shards the one nearest to a loss, as a part of its stream's retention; None while that is not known."""
    left = [
        RetentionLeft(key, shard["timeToRetentionLossMs"], period_ms)
        for key, shard in metrics["shards"].items()
        if shard["timeToRetentionLossMs"] is not None and (period_ms := retention_ms(_stream_of(key))) is not None
    ]
    return min(left, key=lambda each: each.left_ms / each.retention_ms, default=None)


def _stream_of(key: str) -> str:
    return key.rpartition("/")[0]
