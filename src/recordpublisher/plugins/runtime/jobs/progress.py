"""Progress: what the subtasks of a job say of themselves, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


class SubtaskProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One subtask's word: records written, shards, ms behind the tip of the shard that is furthest behind (None: not known)."""

    subtask: int
    records: int
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    behind_ms: int | None


def progress_of(subtask: int, metrics: Mapping[str, Any]) -> SubtaskProgress:
    """From a fetcher's metrics."""
    own, shards = metrics["subtask"], metrics["shards"].values()
    behind = [shard["millisBehindLatest"] for shard in shards if shard["millisBehindLatest"] >= 0]
    return SubtaskProgress(
        subtask,
        own["records"],
        own["openShards"],
        own["idleShards"],
        own["heldShards"],
        sum(shard["skippedRecords"] for shard in shards),
        sum(shard["deadLetters"] for shard in shards),
        max(behind, default=None),
    )


@dataclass(frozen=True, slots=True)
class JobProgress:
    """All subtasks together; `per_second` is the rate since the last look."""

    records: int
    per_second: float
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    behind_ms: int | None

    def __str__(self) -> str:
        parts = [f"{self.records:,} records, {self.per_second:,.0f}/s, {self.open_shards} shards open"]
        counted = {"idle": self.idle_shards, "held": self.held_shards, "skipped": self.skipped}
        parts += [f"{count} {name}" for name, count in {**counted, "dead letters": self.dead_letters}.items() if count]
        parts += [] if self.behind_ms is None else [f"{self.behind_ms / 1000:.1f} s behind"]
        return ", ".join(parts)


class JobProgressMeter:
    """Owns the last word of each subtask."""

    def __init__(self) -> None:
        self._last: dict[int, SubtaskProgress] = {}
        self._seen: tuple[float, int] | None = None

    @property
    def has_reports(self) -> bool:
        """Whether any subtask has spoken yet."""
        return bool(self._last)

    def update(self, progress: SubtaskProgress) -> None:
        """A subtask's newest word."""
        self._last[progress.subtask] = progress

    def sample(self, now: float) -> JobProgress:
        """The job as it stands; `now` in seconds of a clock that never steps."""
        each = list(self._last.values())
        records = sum(one.records for one in each)
        then, before = self._seen or (now, records)
        self._seen = (now, records)
        return JobProgress(
            records,
            (records - before) / (now - then) if now > then else 0.0,
            sum(one.open_shards for one in each),
            sum(one.idle_shards for one in each),
            sum(one.held_shards for one in each),
            sum(one.skipped for one in each),
            sum(one.dead_letters for one in each),
            max((one.behind_ms for one in each if one.behind_ms is not None), default=None),
        )
