"""Reads how far each shard of a job is behind, with at most two reads for each shard.

Without stored positions it measures what arrives in a shard, near its tip, with a few reads more.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, TypeVar

from msgspec.structs import replace

from recordpublisher.fetcher.global_watermark_rules import is_idle
from recordpublisher.fetcher.monitoring.stuck_shards import LineageProgress
from recordpublisher.fetcher.settings import IdleIntervals
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import FatalKinesisError, StateError
from recordpublisher.publishers.kinesis.ports import ListingPort, PollingPort
from recordpublisher.publishers.polling.publisher import (
    MAX_READS,
    PAUSE_SECONDS,
    TipDistance,
    measure_tip_distance,
    retry_pause_seconds,
)
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.job_properties import ALARM_INTERVAL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import GETRECORDS_RETRIES
from recordpublisher.publishers.records import UserRecord, to_millis
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shards import Shard

from .job_snapshot import ShardSnapshot
from .job_state import JobState, JobStateReader


@dataclass(frozen=True, slots=True)
class LagProbe:
    """Measures how far the shards of one stream are read, by the positions in `store`. Without a store it measures what arrives in them.

    - `tips`: reads the records near the tip of a shard. None for a publisher that lists its streams itself: then only the positions are
      known.
    - `alarm_interval_ms`: age from which an unread record may be an alarm.
    - `start`: the initial position of shards without a stored state.
    """

    service: ProbePort
    tips: PollingPort | None
    stream: str
    store: JobStateReader | None
    start: StartingPosition
    alarm_interval_ms: int
    idle_intervals: IdleIntervals
    policy: RetryPolicy

    @classmethod
    def of(
        cls,
        properties: Properties,
        service: ProbePort,
        tips: PollingPort | None,
        stream: str,
        store: JobStateReader | None,
    ) -> LagProbe:
        """Return a probe with the intervals, start and retries of a job's properties. Raises: ConfigurationError if one is invalid."""
        # Imported here because it loads the AWS SDK.
        from recordpublisher.publishers.initial_position import initial_position

        return cls(
            service,
            tips,
            stream,
            store,
            start=initial_position(properties),
            alarm_interval_ms=properties.value(ALARM_INTERVAL),
            idle_intervals=IdleIntervals.of(properties),
            policy=GETRECORDS_RETRIES.policy(properties),
        )

    async def read(self) -> list[ShardSnapshot]:
        """Return every shard that was not read to its end.

        Raises: KinesisError if the service cannot be read; StateError if no positions are stored, or if they cannot be read.
        """
        listed = await self._retried(functools.partial(self.service.list_shards, self.stream))
        return await self._probe_all(listed, await self._load_job(listed))

    async def read_with_alarms(self, grace_seconds: float) -> list[ShardSnapshot]:
        """Read the shards as `read` does, and set their alarms.

        A shard has an alarm if its oldest unread record is older than `alarm_interval_ms`, and its position does not move within
        `grace_seconds`.
        """
        listed = await self._retried(functools.partial(self.service.list_shards, self.stream))
        job = await self._load_job(listed)
        first = await self._probe_all(listed, job)
        overdue = {lag.shard for lag in first if has_old_unread(lag, self.alarm_interval_ms)}
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

    def _with_alarm(self, lag: ShardSnapshot, job: JobState) -> ShardSnapshot:
        if not has_old_unread(lag, self.alarm_interval_ms):
            return lag
        owner = "no worker has stored a position"
        if lag.worker is not None:
            owner = f"worker {lag.worker} stores no progress"
        lowest = job.lowest_shard()
        detail = "" if lowest is None else f"; the lowest watermark of the job is that of {lowest}"
        return replace(lag, alarm=owner + detail)

    async def _load_job(self, listed: Sequence[Shard]) -> JobState:
        if self.store is None:
            return JobState()
        snapshots = await self.store.load_or_beside_rows()
        if not snapshots:
            raise StateError(f"no positions are stored in {self.store.place}: are these the properties of the job?")
        return JobState.of(snapshots, listed, self.start)

    async def _probe_all(self, listed: Sequence[Shard], job: JobState) -> list[ShardSnapshot]:
        now_ms = await self._retried(functools.partial(self.service.server_time_ms, self.stream))
        retention_ms = await self._retention_ms()
        left = [shard for shard in listed if not (shard.key in job.states and job.states[shard.key].ended)]
        probes: list[ShardProbe] = []
        for begin in range(0, len(left), SHARDS_AT_ONCE):
            some = left[begin : begin + SHARDS_AT_ONCE]
            probes += await asyncio.gather(*(self._probe(shard, job, now_ms) for shard in some))
        return [
            *(snapshot_of_probe(probe, now_ms, self.idle_intervals.shown_ms, retention_ms) for probe in probes),
            *(snapshot_of_lost_shard(key, state, job.workers.get(key)) for key, state in job.lost.items()),
        ]

    async def _retention_ms(self) -> int | None:
        """Return the retention period (ms), or None without the permission to read it. Then only the time until loss is unknown."""
        try:
            return await self._retried(functools.partial(self.service.retention_ms, self.stream))
        except FatalKinesisError:
            return None

    async def _probe(self, shard: Shard, job: JobState, now_ms: int) -> ShardProbe:
        if self.store is None and self.tips is not None:
            activity = await self._retried(
                functools.partial(measure_activity, self.tips, shard, now_ms, self.idle_intervals.shown_ms)
            )
            return ShardProbe(shard, activity=activity)
        state = job.states.get(shard.key)
        tip = recent = None
        if self.tips is not None:
            tip = None if state is None else await self._tip(self.tips, shard, state.starting_position(False))
            if tip is None or tip.has_unread or state is None or state.arrival_ms is None:
                since = StartingPosition.at_timestamp(now_ms - self.idle_intervals.shown_ms)
                recent = await self._tip(self.tips, shard, since)
        return ShardProbe(
            shard,
            state,
            tip,
            recent,
            worker=job.workers.get(shard.key),
            taken_ms=job.taken_ms.get(shard.key),
        )

    async def _tip(self, tips: PollingPort, shard: Shard, position: StartingPosition) -> TipDistance | None:
        return await self._retried(functools.partial(measure_tip_distance, tips, shard, position))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, self.policy, min_pause=retry_pause_seconds)


@dataclass(frozen=True, slots=True)
class ShardProbe:
    """The results of probing one shard.

    - `state`: the stored state, or None if none is stored.
    - `tip`: the unread records after the state. `recent`: the records that arrived lately.
    - `activity`: what arrives in the shard; set instead of `tip` and `recent` if no positions are stored.
    - `taken_ms`: when the state was stored (epoch ms).
    """

    shard: Shard
    state: ShardState | None = None
    tip: TipDistance | None = None
    recent: TipDistance | None = None
    activity: ShardActivity | None = None
    worker: str | None = None
    taken_ms: int | None = None


def snapshot_of_probe(probe: ShardProbe, now_ms: int, idle_interval_ms: int, retention_ms: int | None) -> ShardSnapshot:
    """Return the snapshot of a probed shard. `now_ms` is the time of the service's clock."""
    if probe.activity is not None:
        return _without_positions(probe.shard, probe.activity)
    state, tip = probe.state, probe.tip
    oldest_ms = None if tip is None else tip.oldest_ms
    is_known = state is not None and tip is not None
    # A record that arrived in the second of the service's clock has waited, which 0 would deny.
    lag_ms = max(CLOCK_MS, now_ms - oldest_ms) if oldest_ms is not None else 0
    idle_ms = None if state is None or tip is None or tip.has_unread else _since(state.arrival_ms, now_ms)
    has_no_recent = None if probe.recent is None else not probe.recent.has_unread
    return ShardSnapshot(
        stream=probe.shard.stream,
        shard=probe.shard.shard_id,
        position=_position(state),
        watermark=None if state is None else state.watermark,
        unread=tip.has_unread if tip is not None and is_known else None,
        lag_ms=lag_ms if is_known else None,
        is_idle=has_no_recent if idle_ms is None else is_idle(idle_ms, idle_interval_ms),
        idle_ms=idle_ms,
        loss_ms=None if oldest_ms is None or retention_ms is None else oldest_ms + retention_ms - now_ms,
        worker=probe.worker,
        parents=[*probe.shard.parents],
        checkpoint_age_ms=_since(probe.taken_ms, now_ms),
        is_closed=probe.shard.closed,
    )


def _without_positions(shard: Shard, activity: ShardActivity) -> ShardSnapshot:
    rate = activity.records_per_second
    return ShardSnapshot(
        stream=shard.stream,
        shard=shard.shard_id,
        is_idle=None if rate is None else rate == 0,
        idle_ms=activity.tip_age_ms,
        parents=[*shard.parents],
        is_closed=shard.closed,
        **asdict(activity),
    )


def snapshot_of_lost_shard(key: str, state: ShardState, worker: str | None) -> ShardSnapshot:
    """Return the snapshot of a shard that was not read to its end and is no longer listed. The snapshot has an alarm."""
    stream, _, shard_id = key.rpartition("/")
    return ShardSnapshot(
        stream=stream,
        shard=shard_id,
        worker=worker,
        position=_position(state),
        watermark=state.watermark,
        has_alarm=True,
        alarm="the stream no longer lists it: what was not read is past retention and lost",
        parents=[*state.parents],
    )


def has_old_unread(shard: ShardSnapshot, interval_ms: int) -> bool:
    """Return whether the shard's oldest unread record is older than `interval_ms`."""
    return bool(shard.unread) and shard.lag_ms is not None and shard.lag_ms >= interval_ms


def _position(state: ShardState | None) -> str | None:
    return None if state is None or state.position is None else str(state.position)


def _since(moment_ms: int | None, now_ms: int) -> int | None:
    return None if moment_ms is None else max(0, now_ms - moment_ms)


T = TypeVar("T")
CLOCK_MS = 1_000
"""Resolution of the service's clock (ms). An unread record counts as at least this old."""
SHARDS_AT_ONCE = 8
"""Number of shards that are probed concurrently."""


# --- what arrives in a shard, without a stored position -------------------------------------------------------------------------------

FEW_RECORDS, MANY_RECORDS = 100, 1_000
FIRST_WINDOW_MS = 2_000
"""How far before now the first read for a rate starts (ms). At most 2 MB arrive in this time, and one second is enough to read them."""
SECOND_WINDOW_MS = 20_000
"""How far before now the second read starts (ms). It is needed if the first one found no record."""


@dataclass(frozen=True, slots=True)
class ShardActivity:
    """The records that arrive in a shard. Values that are not known are None.

    - `records_per_second`, `bytes_per_second`: Kinesis records, and bytes of their data. Both are 0 if no record arrived lately.
    - `tip`, `tip_age_ms`: sequence number and age (ms) of the newest record, if one arrived lately.
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None
    tip: str | None = None
    tip_age_ms: int | None = None


async def measure_activity(port: PollingPort, shard: Shard, now_ms: int, interval_ms: int) -> ShardActivity:
    """Return the rates of the records that arrived in the last `interval_ms`, and the newest of these records.

    If more than a few arrived, the rates are those of the last seconds in which records arrived.

    Raises: KinesisError if a call fails; nothing is retried.
    """
    start_ms = now_ms - interval_ms
    few = await _read_since(port, shard, start_ms, FEW_RECORDS)
    if few is None:
        return ShardActivity()
    if few[1]:
        return _until_tip(few[0], start_ms, now_ms)
    empty_ms = now_ms  # No record has arrived since.
    for window_ms in (FIRST_WINDOW_MS, SECOND_WINDOW_MS, interval_ms):
        start_ms = now_ms - min(window_ms, interval_ms)
        found = await _read_since(port, shard, start_ms, MANY_RECORDS)
        if found is None:
            break
        records, is_at_tip = found
        if records:
            if is_at_tip:
                return _until_tip(records, start_ms, now_ms)
            # One read did not reach the tip. In a longer window these records are an old burst, because the shorter windows were empty.
            if window_ms == FIRST_WINDOW_MS:
                return _between(records)
            return await _end_of_burst(port, shard, start_ms, empty_ms, now_ms)
        empty_ms = start_ms
    return ShardActivity()


async def _end_of_burst(port: PollingPort, shard: Shard, full_ms: int, empty_ms: int, now_ms: int) -> ShardActivity:
    """Find by bisection a time from which one read reaches the tip. Return the rates since then, and the newest record.

    - `full_ms`: a time since which more records arrived than one read returns. `empty_ms`: a time since which none arrived.
    """
    while empty_ms - full_ms > 1:
        await asyncio.sleep(PAUSE_SECONDS)
        middle_ms = (full_ms + empty_ms) // 2
        found = await _read_since(port, shard, middle_ms, MANY_RECORDS)
        if found is None:
            break
        records, is_at_tip = found
        if records and is_at_tip:
            return _until_tip(records, middle_ms, now_ms)
        full_ms, empty_ms = (middle_ms, empty_ms) if records else (full_ms, middle_ms)
    return ShardActivity()


async def _read_since(
    port: PollingPort, shard: Shard, start_ms: int, limit: int
) -> tuple[Sequence[UserRecord], bool] | None:
    """Return the first records after a time, and whether there are no more.

    Return None if the first responses were all empty and did not reach the tip.
    """
    iterator: str | None = await port.get_shard_iterator(shard, StartingPosition.at_timestamp(start_ms))
    for _ in range(MAX_READS):
        if iterator is None:
            return (), True
        response = await port.get_records(shard, iterator, limit)
        is_at_tip = response.next_iterator is None or not response.millis_behind_latest
        if response.records or is_at_tip:
            return response.records, is_at_tip
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _until_tip(records: Sequence[UserRecord], start_ms: int, now_ms: int) -> ShardActivity:
    if not records:
        return ShardActivity(0.0, 0.0)
    newest_ms = to_millis(records[-1].arrival)
    seconds = (max(now_ms, newest_ms) - start_ms) / 1000
    size = sum(len(record.data) for record in records)
    return ShardActivity(
        len(records) / seconds, size / seconds, records[-1].sequence_number, max(0, now_ms - newest_ms)
    )


def _between(records: Sequence[UserRecord]) -> ShardActivity:
    """Return the rates between the first and the last of these records. The newest record is not known, because newer ones may exist."""
    seconds = (to_millis(records[-1].arrival) - to_millis(records[0].arrival)) / 1000
    if seconds <= 0:  # Arrivals are approximate: the last record may have an earlier one than the first.
        return ShardActivity()
    size = sum(len(record.data) for record in records[1:])
    return ShardActivity((len(records) - 1) / seconds, size / seconds)


class ProbePort(ListingPort, Protocol):
    """The calls of the service that the probe needs, besides those that read records."""

    async def retention_ms(self, stream: str) -> int | None:
        """Return how long the stream keeps its records (ms), or None if that is not known."""
