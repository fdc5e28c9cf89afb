"""Makes snapshots of any job from its stored positions and the tips of its shards. Values that these do not show are unknown."""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from recordpublisher.publishers.clock import Clock

from ..lag.job_snapshot import JobSnapshot, ShardSnapshot, SnapshotSource, SubtaskSnapshot
from ..lag.probe import LagProbe


class StoredSnapshots:
    """Probes each shard of one stream for every snapshot. Owns no connection."""

    def __init__(self, probe: LagProbe, clock: Clock) -> None:
        self._probe = probe
        self._clock = clock

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job.

        Raises: KinesisError if the stream cannot be read; StateError if no positions are stored, or if they cannot be read.
        """
        return job_snapshot(
            await self._probe.read(), self._clock.now_ms(), self._probe.idle_intervals.waits_for_every_shard
        )


class JoinedSnapshots:
    """Joins the streams of one job in one snapshot. Owns the last snapshot. Without readers nothing is read.

    - `sources`: one source for each stream.
    - `interval_seconds`: shortest time between two reads of the sources, for all readers together.
    - `job`: the name of the job, if it has one.
    """

    def __init__(
        self, sources: Sequence[SnapshotSource], clock: Clock, interval_seconds: float, job: str | None = None
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._job = job
        self._reading = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job, or the last snapshot if it is newer than the interval.

        Raises: RecordPublisherError if a stream cannot be read.
        """
        async with self._reading:
            if self._last is None or self._clock.monotonic() - self._last[0] >= self._interval_seconds:
                read = _joined([await source.snapshot() for source in self._sources])
                self._last = self._clock.monotonic(), replace(read, job=self._job or read.job)
            return self._last[1]


def job_snapshot(shards: list[ShardSnapshot], time_ms: int, waits_for_idle: bool = False) -> JobSnapshot:
    """Return the snapshot of a job whose shards were read.

    - `waits_for_idle`: whether its watermarks also wait for idle shards.
    """
    counted = [shard for shard in shards if shard.watermark is not None and (waits_for_idle or not shard.is_idle)]
    lowest = min(counted, key=_watermark, default=None)
    return JobSnapshot(
        time_ms=time_ms,
        shards=shards,
        subtasks=_newest(
            SubtaskSnapshot(shard.subtask, checkpoint_age_ms=shard.checkpoint_age_ms, worker=shard.worker)
            for shard in shards
            if shard.subtask is not None or shard.worker is not None
        ),
        global_watermark=None if lowest is None else lowest.watermark,
        alignment=None if lowest is None else _lowest_sentence(lowest, counted),
    )


def _joined(snapshots: Sequence[JobSnapshot]) -> JobSnapshot:
    """Join snapshots. The lowest watermark is the global one, with the sentence of its stream; the time is the oldest one."""
    marked = [snapshot for snapshot in snapshots if snapshot.global_watermark is not None]
    lowest = min(marked, key=lambda snapshot: snapshot.global_watermark or 0, default=None)
    return JobSnapshot(
        time_ms=min(snapshot.time_ms for snapshot in snapshots),
        shards=[shard for snapshot in snapshots for shard in snapshot.shards],
        subtasks=_newest(subtask for snapshot in snapshots for subtask in snapshot.subtasks or ()),
        global_watermark=None if lowest is None else lowest.global_watermark,
        alignment=None if lowest is None else lowest.alignment,
    )


def _newest(readers: Iterable[SubtaskSnapshot]) -> list[SubtaskSnapshot] | None:
    """Return each subtask or worker once, with its newest checkpoint; None if none is known.

    Whether a subtask or worker is still running is not known.
    """
    newest: dict[tuple[str, int], SubtaskSnapshot] = {}
    for reader in readers:
        key = (reader.worker or "", reader.subtask or 0)
        if key not in newest or _age(reader) < _age(newest[key]):
            newest[key] = reader
    return [newest[key] for key in sorted(newest)] or None


def _age(subtask: SubtaskSnapshot) -> float:
    return float("inf") if subtask.checkpoint_age_ms is None else subtask.checkpoint_age_ms


def _watermark(shard: ShardSnapshot) -> int:
    return shard.watermark or 0


def _lowest_sentence(lowest: ShardSnapshot, shards: Sequence[ShardSnapshot]) -> str:
    ahead_ms = max(map(_watermark, shards)) - _watermark(lowest)
    return (
        f"The lowest watermark is that of {lowest.shard}, {ahead_ms / 1000:,.1f} s below the highest; "
        "which shards are held is not known from stored positions."
    )
