"""Looks at every shard of a stream: two small reads each, whatever lies between position and tip."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.monitoring.unread_shards import lineage_progress
from recordpublisher.publishers.errors import FatalKinesisError, StateError
from recordpublisher.publishers.kinesis.ports import ListingPort, PollingPort
from recordpublisher.publishers.polling.rate_control import retry_pause_seconds
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shard_tip import TipDistance, measure_tip_distance
from recordpublisher.publishers.shards import Shard

from .shard_lag import Look, ShardLag, is_overdue, lag_of, lost_shard
from .stored_positions import NOTHING_STORED, StoredJob

T = TypeVar("T")
AT_ONCE = 8
"""Shards looked at side by side."""


class Service(PollingPort, ListingPort, Protocol):
    """What a look asks of the service."""

    async def retention_ms(self, stream: str) -> int:
        """How long the stream keeps its records, ms."""
        ...


@dataclass(frozen=True, slots=True)
class Watcher:
    """Looks at one stream and, when a store is given, at the positions that a job has stored there.

    `interval_ms` is the alarm interval, `start` where the job begins shards that it knows nothing of.
    """

    service: Service
    stream: str
    store: StateStore | None
    start: StartingPosition
    interval_ms: int
    policy: RetryPolicy

    async def look(self) -> list[ShardLag]:
        """The lag of every shard that was not read to its end. Raises: KinesisError, StateError."""
        listed = await self._asked(functools.partial(self.service.list_shards, self.stream))
        return await self._lags(listed, await self._job(listed))

    async def look_for_alarms(self, patience_seconds: float) -> list[ShardLag]:
        """The same; a shard whose oldest record has waited for the interval, and whose position does not move within the patience, has
        an alarm."""
        listed = await self._asked(functools.partial(self.service.list_shards, self.stream))
        job = await self._job(listed)
        first = await self._lags(listed, job)
        suspects = {lag.shard for lag in first if is_overdue(lag, self.interval_ms)}
        if not suspects:
            return first
        await asyncio.sleep(patience_seconds)
        later = await self._job(listed)
        shards = {shard.shard_id: shard for shard in listed}
        stuck = {each for each in suspects if _stands(shards[each], job, later)}
        second = await self._lags(listed, later)
        return [self._judged(lag, later) if lag.shard in stuck else lag for lag in second]

    def _judged(self, lag: ShardLag, job: StoredJob) -> ShardLag:
        if not is_overdue(lag, self.interval_ms):
            return lag
        owner = "nobody has stored a position" if lag.subtask is None else f"subtask {lag.subtask} stores no progress"
        holder = job.holder()
        words = "" if holder is None else f"; the lowest watermark of the job is that of {holder}"
        return replace(lag, alarm=owner + words)

    async def _job(self, listed: Sequence[Shard]) -> StoredJob:
        if self.store is None:
            return NOTHING_STORED
        snapshots = await self.store.load()
        if not snapshots:
            raise StateError("nothing is stored there: is it the job's flink.state.uri?")
        return StoredJob.of(snapshots, listed, self.start)

    async def _lags(self, listed: Sequence[Shard], job: StoredJob) -> list[ShardLag]:
        now_ms = await self._asked(functools.partial(self.service.server_time_ms, self.stream))
        retention_ms = await self._retention_ms()
        left = [shard for shard in listed if not (shard.key in job.states and job.states[shard.key].ended)]
        looks: list[Look] = []
        for begin in range(0, len(left), AT_ONCE):
            some = left[begin : begin + AT_ONCE]
            looks += await asyncio.gather(*(self._look(shard, job, now_ms) for shard in some))
        return [
            *(lag_of(look, now_ms, self.interval_ms, retention_ms) for look in looks),
            *(lost_shard(key, state, job.subtasks.get(key)) for key, state in job.lost.items()),
        ]

    async def _retention_ms(self) -> int | None:
        """Not knowing it, for want of a right, hides only when records are lost."""
        try:
            return await self._asked(functools.partial(self.service.retention_ms, self.stream))
        except FatalKinesisError:
            return None

    async def _look(self, shard: Shard, job: StoredJob, now_ms: int) -> Look:
        state = job.states.get(shard.key)
        tip = None if state is None else await self._tip(shard, state.starting_position(False))
        recent = None
        if tip is None or tip.has_unread or state is None or state.arrival_ms is None:
            recent = await self._tip(shard, StartingPosition.at_timestamp(now_ms - self.interval_ms))
        return Look(shard, state, job.subtasks.get(shard.key), tip, recent)

    async def _tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        return await self._asked(functools.partial(measure_tip_distance, self.service, shard, position))

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, self.policy, min_pause=retry_pause_seconds)


def _stands(shard: Shard, before: StoredJob, after: StoredJob) -> bool:
    """Whether neither the shard's position nor that of an ancestor that is still read has moved."""
    return lineage_progress(shard, before.states) == lineage_progress(shard, after.states)
