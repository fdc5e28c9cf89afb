"""LagProbe: reads how far a job is behind each shard, or without its positions what arrives there, with at most two reads for each."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec.structs import replace

from recordpublisher.fetcher.monitoring.stuck_shard_detector import LineageProgress
from recordpublisher.publishers.errors import FatalKinesisError, StateError
from recordpublisher.publishers.kinesis.ports import ListingPort, PollingPort
from recordpublisher.publishers.polling.rate_control import retry_pause_seconds
from recordpublisher.publishers.polling.shard_probe import TipDistance, measure_tip_distance
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.groups.job import ALARM_INTERVAL
from recordpublisher.publishers.properties.groups.retries import GETRECORDS_RETRIES
from recordpublisher.publishers.properties.groups.values_and_time import IDLE_INTERVAL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shards import Shard

from .job_snapshot import ShardSnapshot, idle_interval_ms
from .shard_activity import measure_activity
from .shard_lag import ShardProbe, is_overdue, lost_shard, probed_shard
from .stored_positions import NOTHING_STORED, PositionsReader, StoredJob

T = TypeVar("T")
SHARDS_AT_ONCE = 8
"""Shards probed concurrently."""


class Service(PollingPort, ListingPort, Protocol):
    """What the probe needs of the service."""

    async def retention_ms(self, stream: str) -> int:
        """How long the stream keeps its records, ms."""


@dataclass(frozen=True, slots=True)
class LagProbe:
    """Probes one stream and compares it with the positions that a job has stored, when a store is given.

    `alarm_interval_ms`: how old an unread record is that may be an alarm. `idle_interval_ms`: for how long nothing arrives in an idle
    shard; `waits_for_idle`: watermarks wait for such shards too. `start`: the initial position of shards without state.
    """

    service: Service
    stream: str
    store: PositionsReader | None
    start: StartingPosition
    alarm_interval_ms: int
    idle_interval_ms: int
    policy: RetryPolicy
    waits_for_idle: bool = False

    @classmethod
    def of(cls, properties: Properties, service: Service, stream: str, store: PositionsReader | None) -> LagProbe:
        """With the intervals, the start and the retries of a job's properties. Raises: ConfigurationError."""
        from recordpublisher.publishers.initial_position import initial_position  # brings the AWS SDK

        return cls(
            service,
            stream,
            store,
            start=initial_position(properties),
            alarm_interval_ms=properties.value(ALARM_INTERVAL),
            idle_interval_ms=idle_interval_ms(properties),
            policy=GETRECORDS_RETRIES.policy(properties),
            waits_for_idle=properties.value(IDLE_INTERVAL) < 0,
        )

    async def read(self) -> list[ShardSnapshot]:
        """Every shard that was not read to its end. Raises: KinesisError, StateError."""
        listed = await self._retried(functools.partial(self.service.list_shards, self.stream))
        return await self._probe_all(listed, await self._load_job(listed))

    async def read_with_alarms(self, grace_seconds: float) -> list[ShardSnapshot]:
        """The same, with alarms: for a shard whose oldest unread record is older than the interval and whose position does not move within
        the grace period."""
        listed = await self._retried(functools.partial(self.service.list_shards, self.stream))
        job = await self._load_job(listed)
        first = await self._probe_all(listed, job)
        overdue = {lag.shard for lag in first if is_overdue(lag, self.alarm_interval_ms)}
        if not overdue:
            return [replace(lag, has_alarm=bool(lag.alarm)) for lag in first]
        await asyncio.sleep(grace_seconds)
        later = await self._load_job(listed)
        shards = {shard.shard_id: shard for shard in listed}
        before, after = LineageProgress(job.states), LineageProgress(later.states)
        stuck = {shard for shard in overdue if before.of(shards[shard]) == after.of(shards[shard])}
        second = await self._probe_all(listed, later)
        found = [self._with_alarm(lag, later) if lag.shard in stuck else lag for lag in second]
        return [replace(lag, has_alarm=bool(lag.alarm)) for lag in found]

    def _with_alarm(self, lag: ShardSnapshot, job: StoredJob) -> ShardSnapshot:
        if not is_overdue(lag, self.alarm_interval_ms):
            return lag
        owner = "no subtask has stored a position"
        if lag.worker is not None:
            owner = f"worker {lag.worker} stores no progress"
        elif lag.subtask is not None:
            owner = f"subtask {lag.subtask} stores no progress"
        lowest = job.lowest_shard()
        detail = "" if lowest is None else f"; the lowest watermark of the job is that of {lowest}"
        return replace(lag, alarm=owner + detail)

    async def _load_job(self, listed: Sequence[Shard]) -> StoredJob:
        if self.store is None:
            return NOTHING_STORED
        snapshots = await self.store.load()
        if not snapshots:
            raise StateError("no state is stored there; is it the job's flink.state.uri?")
        return StoredJob.of(snapshots, listed, self.start)

    async def _probe_all(self, listed: Sequence[Shard], job: StoredJob) -> list[ShardSnapshot]:
        now_ms = await self._retried(functools.partial(self.service.server_time_ms, self.stream))
        retention_ms = await self._retention_ms()
        left = [shard for shard in listed if not (shard.key in job.states and job.states[shard.key].ended)]
        probes: list[ShardProbe] = []
        for begin in range(0, len(left), SHARDS_AT_ONCE):
            some = left[begin : begin + SHARDS_AT_ONCE]
            probes += await asyncio.gather(*(self._probe(shard, job, now_ms) for shard in some))
        return [
            *(probed_shard(probe, now_ms, self.idle_interval_ms, retention_ms) for probe in probes),
            *(lost_shard(key, state, job.subtasks.get(key)) for key, state in job.lost.items()),
        ]

    async def _retention_ms(self) -> int | None:
        """None without the permission to read it: then only the time until loss is unknown."""
        try:
            return await self._retried(functools.partial(self.service.retention_ms, self.stream))
        except FatalKinesisError:
            return None

    async def _probe(self, shard: Shard, job: StoredJob, now_ms: int) -> ShardProbe:
        if self.store is None:
            activity = await self._retried(
                functools.partial(measure_activity, self.service, shard, now_ms, self.idle_interval_ms)
            )
            return ShardProbe(shard, activity=activity)
        state = job.states.get(shard.key)
        tip = None if state is None else await self._tip(shard, state.starting_position(False))
        recent = None
        if tip is None or tip.has_unread or state is None or state.arrival_ms is None:
            recent = await self._tip(shard, StartingPosition.at_timestamp(now_ms - self.idle_interval_ms))
        return ShardProbe(
            shard,
            state,
            job.subtasks.get(shard.key),
            tip,
            recent,
            worker=job.workers.get(shard.key),
            taken_ms=job.taken_ms.get(shard.key),
        )

    async def _tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        return await self._retried(functools.partial(measure_tip_distance, self.service, shard, position))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, self.policy, min_pause=retry_pause_seconds)
