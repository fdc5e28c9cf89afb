"""Looks for unread and withheld shards, a stalled watermark and a hanging sink (A2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, stream_of

from ..alarms import ActiveAlarms, Alarm, AlarmKind
from ..checkpoints.commits import CheckpointAge
from ..dependencies import FetcherDependencies
from ..leases.lease_counts import LeaseCounts
from ..pipeline.emitter import Emitter, RunCompletion
from ..pipeline.reading import ReadBlock, why_blocked
from ..shards.retention_check import CACHE_SECONDS
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_reading import ShardState
from ..shards.shard_table import ShardTable, parent_keys
from ..sink import Sink, Unfinished
from ..watermarks import Alignment
from .status_log import blocked_by

POLL_SECONDS = 0.5
FLUSH_MS = 5_000


class AlarmMonitor:
    """Owns when the checks run.

    `UnreadRecordsCheck` finds unread shards, and `WatermarkStallDetector` a global watermark that does not rise.
    """

    def __init__(
        self,
        dependencies: FetcherDependencies,
        table: ShardTable,
        alignment: Alignment,
        emitter: Emitter,
        leases: LeaseCounts,
    ) -> None:
        self._dependencies = dependencies
        self._table = table
        self._alignment = alignment
        self._emitter = emitter
        interval_ms = dependencies.settings.alarm_interval_ms
        self._is_off = interval_ms < 0
        self._pause_seconds = min(max(interval_ms / 1000 / CHECKS_PER_INTERVAL, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        max_gap = 2 * self._pause_seconds
        self._unread_shards = StuckShardDetector(interval_ms, max_gap)
        self._stall_detector = WatermarkStallDetector(max_gap)
        self._sink_call = UnchangedTimer(max_gap)
        self._withheld = WithheldShards(leases, interval_ms, max_gap)
        self._observer = UnreadRecordsCheck(dependencies, table, max_gap)
        self.active_alarms = ActiveAlarms(interval_ms, dependencies.on_alarm)

    @property
    def watermark_stalled_ms(self) -> int:
        """How long the global watermark has not risen while records were emitted or held back (ms)."""
        return round(self._stall_detector.seconds * 1000)

    async def run(self) -> None:
        """Check until cancelled. A failed check changes nothing and never ends the job."""
        while not self._is_off:
            await asyncio.sleep(self._pause_seconds)
            try:
                await self._check()
            except Exception:
                log.exception("a check for alarms failed, the job continues")

    async def _check(self) -> None:
        observations = await self._observer.observe_all(self._blocked_by())
        now = self._dependencies.clock.monotonic()
        unread, withheld = self._unread_shards.update(observations, now), self._withheld.alarms(now)
        of_sink = self._sink_alarms(now)
        self.active_alarms.update([*unread, *withheld, *of_sink, *self._watermark_alarms()])

    def _watermark_alarms(self) -> list[Alarm]:
        """Return an alarm for a stalled global watermark, if anything depends on it: alignment, or a sink with a `watermark` method."""
        dependencies = self._dependencies
        entries = list(self._table)
        value, now = self._alignment.global_watermark, dependencies.clock.monotonic()
        seconds = self._stall_detector.update(value, entries, self._emitter.records, now)
        is_aligned = dependencies.settings.alignment.lookahead_ms is not None
        is_used = is_aligned or type(dependencies.sink).watermark is not Sink.watermark
        if not is_used or seconds * 1000 < dependencies.settings.alarm_interval_ms:
            return []
        reason = f"it stays at {value}, waiting for {self._blocked_by()}"
        return [Alarm(AlarmKind.STALLED, "global watermark", round(seconds * 1000), reason)]

    def _sink_alarms(self, now: float) -> list[Alarm]:
        """Return an alarm for a call of user code that does not return.

        The sink takes other records in the meantime, so the shard seems to make progress.
        """
        unfinished = self._dependencies.sink.unfinished()
        if unfinished is None or unfinished.call is None:
            self._sink_call.reset()
            return []
        lasting_ms = round(self._sink_call.observe(unfinished.call, now) * 1000)
        is_long = lasting_ms >= self._dependencies.settings.alarm_interval_ms
        return [Alarm(AlarmKind.HANGING, "sink", lasting_ms, unfinished.reason)] if is_long else []

    def _blocked_by(self) -> str:
        return blocked_by(self._alignment)


async def cancel_if_hung(
    ending: Coroutine[Any, Any, None],
    unfinished: Callable[[], Unfinished | None],
    checkpoint_running_ms: Callable[[], int],
    seconds: float,
    clock: Clock,
) -> Unfinished | None:
    """Await `ending`.

    If one call (`Unfinished.call`) has run for `seconds` in that time, cancel it and return the sink's unfinished records.

    A checkpoint is not interrupted while it may be being stored: only a checkpoint that has run for `FLUSH_MS` is assumed to wait for the
    sink. Return None if `ending` has finished. Raises: the errors of `ending`.
    """
    task = asyncio.create_task(ending)
    call, since = None, clock.monotonic()
    try:
        while not (await asyncio.wait([task], timeout=POLL_SECONDS))[0]:
            left = unfinished()
            if left is None or left.call is None or left.call != call:
                call, since = None if left is None else left.call, clock.monotonic()
            elif clock.monotonic() - since >= seconds and not 0 < checkpoint_running_ms() < FLUSH_MS:
                task.cancel()
                await asyncio.wait([task])
                return left if task.cancelled() else task.result()
        return task.result()
    finally:
        if not task.done():  # this coroutine was cancelled
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


log = logging.getLogger("recordpublisher.alarm")

CHECKS_PER_INTERVAL = 10
"""Number of checks in one alarm interval."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 30.0
"""The shortest and the longest pause between two checks (seconds)."""


# Measures how long the global watermark has not risen although there was something to emit (A2).


class WatermarkStallDetector:
    """Owns the last global watermark that a check saw.

    A stream without records does not stall the watermark. So a check counts only if it finds records held back, or if records above the
    watermark were emitted since the previous check.
    """

    def __init__(self, max_gap: float) -> None:
        self._unchanged = UnchangedTimer(max_gap)
        self._records = 0

    @property
    def seconds(self) -> float:
        """How long the global watermark has been stalled (seconds)."""
        return self._unchanged.seconds

    def update(self, value: int | None, entries: Iterable[ShardEntry], records: int, now: float) -> float:
        """Check the global watermark `value`, and return how long it has been stalled (seconds).

        `records` is the number of records emitted so far, and `now` the time in monotonic seconds.
        """
        has_emitted, self._records = records > self._records, records
        shards = [entry for entry in entries if entry.is_open]
        is_held = any(entry.status.is_held for entry in shards)
        if is_held or (has_emitted and any(_is_above(entry, value) for entry in shards)):
            return self._unchanged.observe((value,), now)
        return self._unchanged.skip((value,), now)


def _is_above(entry: ShardEntry, value: int | None) -> bool:
    return entry.state.watermark is not None and (value is None or entry.state.watermark > value)


class UnchangedTimer:
    """Adds up the time between checks that observed the same value.

    The time between two checks counts up to `max_gap` seconds. A process that was suspended or starved made no checks in that
    time, and must not raise alarms about others because of it.
    """

    def __init__(self, max_gap: float) -> None:
        self._max_gap = max_gap
        self._value: object = None
        self._checked_at: float | None = None
        self.seconds = 0.0

    def observe(self, value: object, now: float) -> float:
        """Register that a check observed `value`, and return how long it has been unchanged (seconds)."""
        if self._checked_at is None or value != self._value:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._checked_at, self._max_gap)
        self._value, self._checked_at = value, now
        return self.seconds

    def skip(self, value: object, now: float) -> float:
        """Register an inconclusive check: the time since the last check does not count. Another value starts from zero."""
        if self._checked_at is not None and value == self._value:
            self._checked_at = now
            return self.seconds
        self.reset()
        return 0.0

    def reset(self) -> None:
        """Start from zero."""
        self._checked_at, self.seconds = None, 0.0


# Detects shards that have unread records and emit nothing (A2), and workers that do not release shards (E5).


class UnreadCheck(msgspec.Struct, frozen=True):
    """The result of one check of one shard.

    - `progress`: changes whenever something of the shard was emitted.
    - `unread`: whether the shard has records that were not emitted. None if this check did not find out.
    - `reason`: which worker should read the shard, or why nothing is emitted.
    """

    key: str
    progress: object
    unread: bool | None
    reason: str


class StuckShardDetector:
    """Owns how long each shard has had unread records and emitted nothing."""

    def __init__(self, interval_ms: int, max_gap: float) -> None:
        self._interval_ms = interval_ms
        self._max_gap = max_gap
        self._timers: dict[str, UnchangedTimer] = {}

    def update(self, observations: Iterable[UnreadCheck], now: float) -> list[Alarm]:
        """Return an alarm for each shard that was unread for the alarm interval. `now` is in monotonic seconds.

        A shard without an observation is dropped.
        """
        observed = {observation.key: observation for observation in observations}
        self._timers = {key: self._timers.get(key) or UnchangedTimer(self._max_gap) for key in observed}
        alarms = []
        for key, observation in observed.items():
            lasting_ms = round(self._unread_seconds(observation, self._timers[key], now) * 1000)
            if lasting_ms >= self._interval_ms:
                alarms.append(Alarm(AlarmKind.UNREAD, key, lasting_ms, observation.reason))
        return alarms

    def _unread_seconds(self, observation: UnreadCheck, timer: UnchangedTimer, now: float) -> float:
        if observation.unread:
            return timer.observe(observation.progress, now)
        if observation.unread is None:
            return timer.skip(observation.progress, now)
        timer.reset()
        return 0.0


class LineageProgress:
    """The positions up to which shards and their unread ancestors were emitted, from one set of `states`. Each shard is visited once.

    After n splits and merges there are 2^n paths from a shard to its oldest ancestor, so no path is followed twice.
    """

    def __init__(self, states: Mapping[str, ShardState]) -> None:
        self._states = states
        self._waited_for: dict[str, frozenset[object]] = {}

    def of(self, shard: Shard) -> object:
        """Return a value that changes when something of the shard, or of an ancestor that it waits for, is emitted.

        So a child that waits while its parent is read makes progress (S2).
        """
        own = self._states.get(shard.key)
        progress = None if own is None else (own.position, own.continuation, own.ended)
        return progress, self._of_parents(parent_keys(shard))

    def _of_parents(self, parents: Iterable[str]) -> frozenset[object]:
        """Return the progress of the oldest unfinished ancestors. No other ancestor can be read now."""
        to_visit = list(parents)
        while to_visit:
            key = to_visit[-1]
            unvisited = [parent for parent in self._unfinished_parents(key) if parent not in self._waited_for]
            if key in self._waited_for or not unvisited:
                self._waited_for[to_visit.pop()] = self._progress(key)
            else:
                self._waited_for[key] = (
                    frozenset()
                )  # This value is preliminary until the parents are visited. It also ends a cycle in a stored document.
                to_visit += unvisited
        return frozenset().union(*(self._waited_for[parent] for parent in parents))

    def _progress(self, key: str) -> frozenset[object]:
        state = self._states.get(key)
        if state is None or state.ended:
            return frozenset()
        of_parents = [self._waited_for.get(parent, frozenset()) for parent in self._unfinished_parents(key)]
        return frozenset().union(*of_parents) or frozenset([(key, state.position, state.continuation)])

    def _unfinished_parents(self, key: str) -> list[str]:
        state = self._states.get(key)
        if state is None or state.ended:
            return []
        stream = stream_of(key)
        return [f"{stream}/{parent}" for parent in state.parents]


def observe_own_shard(
    entry: ShardEntry,
    progress: object,
    now_ms: int,
    fresh_ms: int,
    blocked: ReadBlock | None,
    alignment_waits_for: str,
) -> UnreadCheck:
    """Observe a shard of this worker, without a call to the service.

    `unread` is None if no read returned for `fresh_ms`. `blocked` is the reason why its next read waits.
    """
    unread = _is_unread(entry, now_ms, fresh_ms)
    return UnreadCheck(entry.key, progress, unread, _reason(entry, blocked, alignment_waits_for))


def _is_unread(entry: ShardEntry, now_ms: int, fresh_ms: int) -> bool | None:
    if entry.stage is ShardStage.ENDED or (entry.reading.needs_no_more and not entry.reading.queue):
        return False
    if entry.has_unwritten:
        return True
    if entry.reading.last_read_ms is None or now_ms - entry.reading.last_read_ms > fresh_ms:
        return None
    return not entry.reading.at_tip


def _reason(entry: ShardEntry, blocked: ReadBlock | None, alignment_waits_for: str) -> str:
    if entry.emission.is_writing:
        return "the sink's write does not return"
    if blocked is ReadBlock.ALIGNMENT:
        return f"{blocked.value}, which waits for {alignment_waits_for}"
    if blocked is ReadBlock.PARENTS:
        return f"{blocked.value} {list(entry.shard.parents)}"
    return "the sink does not take it" if entry.reading.queue.unhandled else "its reads return nothing"


class WithheldShards:
    """Raises alarms for workers that send heartbeats and do not release shards that other workers should read (E5).

    Owns how long each worker has withheld the same shards. A worker that releases some of them makes progress.
    """

    def __init__(self, leases: LeaseCounts, interval_ms: int, max_gap: float) -> None:
        self._leases = leases
        self._interval_ms = interval_ms
        self._max_gap = max_gap
        self._timers: dict[str, UnchangedTimer] = {}

    def alarms(self, now: float) -> list[Alarm]:
        """Return an alarm for each worker that has withheld its shards for the alarm interval. `now` is in monotonic seconds."""
        withheld = self._leases.withheld
        self._timers = {worker: self._timers.get(worker) or UnchangedTimer(self._max_gap) for worker in withheld}
        lasting = {
            worker: round(self._timers[worker].observe(tuple(shards), now) * 1000)
            for worker, shards in withheld.items()
        }
        return [
            Alarm(AlarmKind.WITHHELD, f"worker {worker}", lasting_ms, _withheld_reason(worker, withheld[worker]))
            for worker, lasting_ms in lasting.items()
            if lasting_ms >= self._interval_ms
        ]


def _withheld_reason(worker: str, shards: Collection[str]) -> str:
    example = next(iter(shards))
    return (
        f"{len(shards)} of its shards wait for its last checkpoint, among them {example}; "
        f"`recordpublisher group drain JOB {worker} --force` takes them away"
    )


# Checks whether shards of this process have unread records and emit none (A2).

MIN_FRESH_SECONDS = 7.0
"""A read at the tip is valid for at least this time: a healthy subscription sends an event about every 5 s (seconds)."""
PARALLEL_TIP_REQUESTS = 8

Observed = tuple[Shard, ShardState, UnreadCheck]
"""An observation, with the shard and its state. If it is inconclusive, the shard's tip is requested from the position of that state."""


class UnreadRecordsCheck:
    """Requests the tip of a shard only if its reads do not return; otherwise the check makes no call."""

    def __init__(self, dependencies: FetcherDependencies, table: ShardTable, fresh_seconds: float) -> None:
        self._dependencies = dependencies
        self._table = table
        self._fresh_ms = round(1000 * max(fresh_seconds, MIN_FRESH_SECONDS))

    async def observe_all(self, blocked_by: str) -> list[UnreadCheck]:
        """Observe every shard; `blocked_by` names what alignment waits for."""
        now_ms, progress_of = self._dependencies.clock.now_ms(), LineageProgress(self._table.states()).of
        limits = self._dependencies.settings.budget
        observed = [
            (
                entry.shard,
                entry.state,
                observe_own_shard(
                    entry, progress_of(entry.shard), now_ms, self._fresh_ms, why_blocked(entry, limits), blocked_by
                ),
            )
            for entry in self._table
        ]
        return await self._with_tips(observed)

    async def _with_tips(self, observed: Sequence[Observed]) -> list[UnreadCheck]:
        """Request the shard's tip if an observation is inconclusive."""
        conclusive = [observation for _, _, observation in observed if observation.unread is not None]
        inconclusive = [each for each in observed if each[2].unread is None]
        for start in range(0, len(inconclusive), PARALLEL_TIP_REQUESTS):
            some = inconclusive[start : start + PARALLEL_TIP_REQUESTS]
            conclusive += await asyncio.gather(*(self._with_tip(*each) for each in some))
        return conclusive

    async def _with_tip(self, shard: Shard, state: ShardState, observation: UnreadCheck) -> UnreadCheck:
        unread = await self._has_unread(shard, state.starting_position(False))
        return UnreadCheck(observation.key, observation.progress, unread, observation.reason)

    async def _has_unread(self, shard: Shard, position: StartingPosition) -> bool | None:
        if self._dependencies.tip is None:
            return None
        try:
            tip = await self._dependencies.tip(shard, position)
        except RecordPublisherError as error:
            log.info("the tip of %s cannot be read: %s", shard.key, error, extra=about(shard.key))
            return None
        return None if tip is None else tip.has_unread


# Keeps how long each stream retains its records; requests it as often as `RetentionCheck` does.

fetcher_log = logging.getLogger("recordpublisher.fetcher")


class RetentionPeriods:
    """Owns the retention period of each stream. It is None while it is not known.

    `retention_ms` requests the period of a stream; it is None if the source does not report periods.
    """

    def __init__(self, retention_ms: Callable[[str], Awaitable[int | None]] | None, streams: Collection[str]) -> None:
        self._retention_ms = retention_ms
        self._streams = streams
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """Return the retention period of a stream (ms), or None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Request the period of every stream now, and again every five minutes, because it can be changed."""
        if self._retention_ms is None:
            return
        while True:
            for stream in self._streams:
                await self._request(stream)
            await asyncio.sleep(CACHE_SECONDS)

    async def request_missing(self) -> None:
        """Request the periods of streams that were added later."""
        for stream in self._streams:
            if stream not in self._known:
                await self._request(stream)

    async def _request(self, stream: str) -> None:
        if self._retention_ms is None:
            return
        try:
            self._known[stream] = await self._retention_ms(stream)
        except Exception:
            fetcher_log.exception("the retention of %s cannot be read, the job continues", stream, extra=about(stream))


# Decides whether a worker is ready: it reads, its checkpoints are stored, its sink does not hang, and no newer start
# has fenced it.

READ_LIMIT_MS = 60_000
"""Without a successful read for this time the service counts as unreachable (ms). An empty read is successful."""
FAILED_READ_LIMIT_MS = 10_000
"""The same limit while calls fail (ms). After a single failure the next attempt comes within this time."""
CHECKPOINT_LIMIT_MS = 60_000
"""A checkpoint that takes longer is stuck, because the store or the sink does not answer (ms)."""


def reasons_not_ready(
    completion: RunCompletion,
    entries: Iterable[ShardEntry],
    checkpoints: CheckpointAge,
    alarms: Iterable[Alarm],
    now_ms: int,
    undecided: str | None = None,
) -> list[str]:
    """Return why the worker is not ready, in plain words, or an empty list if it is ready.

    `undecided` is the entry of a commit without an answer. The reasons come from what the run has seen, without a call to a service. No
    reason is needed for a fenced process, or for one whose store refuses a checkpoint: it ends with an error.
    """
    if completion.error is not None:
        return [f"the run ended with {type(completion.error).__name__}: {completion.error}"]
    if not completion.is_running:
        return ["it does not run: it is starting, draining or has ended"]
    reasons = []
    reasons += _why_nothing_is_read(entries, now_ms)
    if checkpoints.running_ms > CHECKPOINT_LIMIT_MS:
        why = "store or sink do not answer" if undecided is None else f"whether {undecided} is stored is not known"
        reasons.append(f"no checkpoint could be stored for {checkpoints.running_ms // 1000} s: {why}")
    return reasons + [str(alarm) for alarm in alarms if alarm.kind is AlarmKind.HANGING]


def _why_nothing_is_read(entries: Iterable[ShardEntry], now_ms: int) -> list[str]:
    """Return a reason if no shard was read lately. A shard with queued records waits for the sink or for alignment, not for the service."""
    waiting = [entry for entry in entries if entry.stage is ShardStage.READING and not entry.reading.queue]
    ages = [(_since_read_ms(entry, now_ms), entry.metrics.last_failure) for entry in waiting]
    if not ages or any(age <= (READ_LIMIT_MS if failure is None else FAILED_READ_LIMIT_MS) for age, failure in ages):
        return []
    age, failure = min(ages, key=lambda each: each[0])
    since = "yet" if age == inf else f"for {age / 1000:.0f} s"
    return [f"no shard was read {since}" + ("" if failure is None else f": {failure}")]


def _since_read_ms(entry: ShardEntry, now_ms: int) -> float:
    last_ms = entry.reading.last_read_ms
    return inf if last_ms is None else now_ms - last_ms
