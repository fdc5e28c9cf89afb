"""JoinedSnapshots: the streams of one job in one snapshot, read at most every few seconds for all readers together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recordpublisher.publishers.clock import Clock

from .snapshot import JobSnapshot, SnapshotSource, SubtaskSnapshot


class JoinedSnapshots:
    """Owns the last snapshot. Nothing is read while nobody asks."""

    def __init__(self, sources: Sequence[SnapshotSource], clock: Clock, interval_seconds: float) -> None:
        """`sources`: one for each stream. `interval_seconds`: from one reading of them to the next."""
        self._sources = sources
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._reading = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """The job now, or within the interval the last one. Raises: RecordPublisherError when a stream cannot be read."""
        async with self._reading:
            if self._last is None or self._clock.monotonic() - self._last[0] >= self._interval_seconds:
                read = _joined([await each.snapshot() for each in self._sources])
                self._last = self._clock.monotonic(), read
            return self._last[1]


def _joined(snapshots: Sequence[JobSnapshot]) -> JobSnapshot:
    """The lowest watermark is the global one, and its stream has the sentence. The time is that of the oldest values."""
    marked = [each for each in snapshots if each.global_watermark is not None]
    lowest = min(marked, key=lambda each: each.global_watermark or 0, default=None)
    return JobSnapshot(
        time_ms=min(each.time_ms for each in snapshots),
        shards=[shard for each in snapshots for shard in each.shards],
        subtasks=_joined_subtasks(snapshots),
        global_watermark=None if lowest is None else lowest.global_watermark,
        alignment=None if lowest is None else lowest.alignment,
    )


def _joined_subtasks(snapshots: Sequence[JobSnapshot]) -> list[SubtaskSnapshot] | None:
    """Each once, with its newest checkpoint: the one position of a subtask is that of all its streams."""
    found: dict[tuple[str, int], SubtaskSnapshot] = {}
    for each in (subtask for snapshot in snapshots for subtask in snapshot.subtasks or ()):
        key = (each.worker or "", each.subtask or 0)
        other = found.get(key)
        if other is None or _age(each) < _age(other):
            found[key] = each
    return [found[key] for key in sorted(found)] or None


def _age(subtask: SubtaskSnapshot) -> float:
    return float("inf") if subtask.checkpoint_age_ms is None else subtask.checkpoint_age_ms
