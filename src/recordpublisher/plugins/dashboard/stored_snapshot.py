"""StoredSnapshots: snapshots of any job, from its stored positions and the tips of its shards. What these do not tell is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from recordpublisher.publishers.clock import Clock

from ..lag.shard_lag import ShardLag
from .snapshot import JobSnapshot, ShardSnapshot, SubtaskSnapshot


class StoredSnapshots:
    """Reads the lag of each shard of one stream for every snapshot. Owns nothing."""

    def __init__(self, stream: str, read_lags: Callable[[], Awaitable[list[ShardLag]]], clock: Clock) -> None:
        self._stream = stream
        self._read_lags = read_lags
        self._clock = clock

    async def snapshot(self) -> JobSnapshot:
        """The job now. Raises: KinesisError, StateError."""
        lags = await self._read_lags()
        watermarks = [lag for lag in lags if lag.watermark is not None and not lag.is_idle]
        lowest = min(watermarks, key=_watermark, default=None)
        return JobSnapshot(
            time_ms=self._clock.now_ms(),
            shards=[self._shard(lag) for lag in lags],
            subtasks=_subtasks(lags),
            global_watermark=None if lowest is None else lowest.watermark,
            alignment=None if lowest is None else _lowest_sentence(lowest, watermarks),
        )

    def _shard(self, lag: ShardLag) -> ShardSnapshot:
        return ShardSnapshot(
            stream=self._stream,
            shard=lag.shard,
            subtask=lag.subtask,
            worker=lag.worker,
            lag_ms=lag.lag_ms,
            records_per_second=lag.records_per_second,
            bytes_per_second=lag.bytes_per_second,
            watermark=lag.watermark,
            is_idle=lag.is_idle,
            loss_ms=lag.loss_ms,
            alarm=lag.alarm is not None,
            parents=list(lag.parents),
        )


def _subtasks(lags: Sequence[ShardLag]) -> list[SubtaskSnapshot] | None:
    """Who has stored a position, and how long ago its newest checkpoint was; whether it still runs is not known."""
    ages: dict[tuple[int | None, str | None], int | None] = {}
    for lag in lags:
        if lag.subtask is None and lag.worker is None:
            continue
        reader = (lag.subtask, lag.worker)
        known = [age for age in (ages.get(reader), lag.checkpoint_age_ms) if age is not None]
        ages[reader] = min(known, default=None)
    found = [SubtaskSnapshot(*reader[:1], checkpoint_age_ms=age, worker=reader[1]) for reader, age in ages.items()]
    return sorted(found, key=lambda each: (each.worker or "", each.subtask or 0)) or None


def _watermark(lag: ShardLag) -> int:
    return lag.watermark or 0


def _lowest_sentence(lowest: ShardLag, lags: Sequence[ShardLag]) -> str:
    ahead_ms = max(map(_watermark, lags)) - _watermark(lowest)
    return (
        f"The lowest watermark is that of {lowest.shard}, {ahead_ms / 1000:,.1f} s below the highest; "
        "which shards are held is not known from stored positions."
    )
