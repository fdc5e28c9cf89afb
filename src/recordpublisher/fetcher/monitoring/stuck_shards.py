"""Detects shards that are stuck: they have unread records and emit none (A2), or their worker does not release them (E5).

`WatermarkStallDetector` detects that the global watermark does not rise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, stream_of

from ..alarms import Alarm, AlarmKind
from ..dependencies import FetcherDependencies
from ..leases.group_counters import GroupCounters
from ..pipeline.memory_budget import ReadBlock, why_blocked
from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardTable

CHECKS_PER_INTERVAL = 10
"""Number of checks in one alarm interval."""


class StuckShardDetector:
    """Returns an alarm for each shard that has had unread records, and emitted none, for the alarm interval."""

    def __init__(self, interval_ms: int, max_gap: float) -> None:
        self._interval_ms = interval_ms
        self._max_gap = max_gap
        self._timers: dict[str, UnchangedTimer] = {}

    def update(self, observations: Iterable[UnreadFinding], now: float) -> list[Alarm]:
        """Return an alarm for each shard that had unread records for the whole alarm interval. `now` is in monotonic seconds.

        A shard that is not among the observations is forgotten.
        """
        observed = {observation.key: observation for observation in observations}
        self._timers = {key: self._timers.get(key) or UnchangedTimer(self._max_gap) for key in observed}
        alarms = []
        for key, observation in observed.items():
            lasting_ms = round(self._unread_seconds(observation, self._timers[key], now) * 1000)
            if lasting_ms >= self._interval_ms:
                alarms.append(Alarm(AlarmKind.UNREAD, key, lasting_ms, observation.reason))
        return alarms

    def _unread_seconds(self, observation: UnreadFinding, timer: UnchangedTimer, now: float) -> float:
        if observation.unread:
            return timer.observe(observation.progress, now)
        if observation.unread is None:
            return timer.skip(observation.progress, now)
        timer.reset()
        return 0.0


class WatermarkStallDetector:
    """Measures for how long the global watermark has been stalled: it has not risen while there were records above it.

    Time counts only if alignment holds records back, or if records above the watermark were emitted since the previous check. A stream
    without records therefore raises no alarm.
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
    """Adds up the time between checks that have seen the same value.

    Between two checks at most `max_gap` seconds count, so a process raises no alarm only because it was suspended or had no CPU.
    """

    def __init__(self, max_gap: float) -> None:
        self._max_gap = max_gap
        self._value: object = None
        self._checked_at: float | None = None
        self.seconds = 0.0

    def observe(self, value: object, now: float) -> float:
        """Register the value that a check has seen. Return how long it has been unchanged (seconds)."""
        if self._checked_at is None or value != self._value:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._checked_at, self._max_gap)
        self._value, self._checked_at = value, now
        return self.seconds

    def skip(self, value: object, now: float) -> float:
        """Register a check without a result: the time since the last check does not count. Start from zero if `value` has changed.

        Return how long `value` has been unchanged (seconds).
        """
        if self._checked_at is not None and value == self._value:
            self._checked_at = now
            return self.seconds
        self.reset()
        return 0.0

    def reset(self) -> None:
        """Start from zero."""
        self._checked_at, self.seconds = None, 0.0


class UnreadFinding(msgspec.Struct, frozen=True):
    """The result of one check of one shard.

    - `key`: the `Shard.key` of the shard.
    - `progress`: a value that changes whenever records of the shard were emitted.
    - `unread`: whether the shard has records that were not emitted. None if the check could not tell.
    - `reason`: which worker should read the shard, or why nothing is emitted.
    """

    key: str
    progress: object
    unread: bool | None
    reason: str


class LineageProgress:
    """Computes how far each shard and its unread ancestors were emitted. `states`: the states of the shards by `Shard.key`.

    Each shard is visited once, and not once for each of the 2^n paths to it after n splits and merges.
    """

    def __init__(self, states: Mapping[str, ShardState]) -> None:
        self._states = states
        self._waited_for: dict[str, frozenset[object]] = {}

    def of(self, shard: Shard) -> object:
        """Return a value that changes when a record of the shard, or of an ancestor for which it waits, is emitted.

        So a child counts as making progress while its parent is read.
        """
        own = self._states.get(shard.key)
        progress = None if own is None else (own.position, own.continuation, own.ended)
        return progress, self._of_parents(parent_keys(shard))

    def _of_parents(self, parents: Iterable[str]) -> frozenset[object]:
        """Return the positions of the oldest ancestors that were not read to their end. Only these shards can be read now."""
        to_visit = list(parents)
        while to_visit:
            key = to_visit[-1]
            unvisited = [parent for parent in self._unfinished_parents(key) if parent not in self._waited_for]
            if key in self._waited_for or not unvisited:
                self._waited_for[to_visit.pop()] = self._progress(key)
            else:
                # This value is preliminary until the parents are visited. It also ends a cycle in a stored document.
                self._waited_for[key] = frozenset()
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


def check_own_shard(
    entry: ShardEntry,
    progress: object,
    now_ms: int,
    fresh_ms: int,
    blocked: ReadBlock | None,
    alignment_waits_for: str,
) -> UnreadFinding:
    """Check a shard that this worker reads, without a call to the service.

    - `fresh_ms`: how long the result of a read is valid. If no read returned in that time, `unread` is None.
    - `blocked`: the reason why the shard's next read waits.
    - `alignment_waits_for`: words for the shard or worker that alignment waits for. The finding's `reason` contains them.
    """
    unread = _is_unread(entry, now_ms, fresh_ms)
    return UnreadFinding(entry.key, progress, unread, _reason(entry, blocked, alignment_waits_for))


def _is_unread(entry: ShardEntry, now_ms: int, fresh_ms: int) -> bool | None:
    if entry.has_ended or (entry.reading.needs_no_more and not entry.reading.queue):
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
        return f"{blocked.value}: {', '.join(entry.shard.parents)}"
    return "its queued records wait for the sink" if entry.reading.queue.unhandled else "its reads return nothing"


class WithheldShards:
    """Raises an alarm if a worker sends heartbeats but does not release shards that other workers should read.

    It measures for how long each worker has withheld the same shards. When a worker releases one of them, the time starts again from zero.
    """

    def __init__(self, leases: GroupCounters, interval_ms: int, max_gap: float) -> None:
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
        f"{len(shards)} of its shards wait for its last checkpoint, among them {example}. To take them from it, "
        f"run `recordpublisher group drain JOB {worker} --force`"
    )


# UnreadRecordsCheck checks whether shards of this process have unread records and emit none (A2).

MIN_FRESH_SECONDS = 7.0
"""The shortest time for which the result of a read at the tip is valid (seconds). A healthy subscription sends an event about every 5 s."""


PARALLEL_TIP_REQUESTS = 8


log = logging.getLogger("recordpublisher.alarm")
CheckedShard = tuple[Shard, ShardState, UnreadFinding]
"""A shard, its state, and the result of its check."""


class UnreadRecordsCheck:
    """Checks which shards have unread records. It calls the service only for a shard whose reads do not return."""

    def __init__(self, dependencies: FetcherDependencies, table: ShardTable, fresh_seconds: float) -> None:
        self._dependencies = dependencies
        self._table = table
        self._fresh_ms = round(1000 * max(fresh_seconds, MIN_FRESH_SECONDS))

    async def observe_all(self, blocked_by: str) -> list[UnreadFinding]:
        """Check every shard, and return the findings. `blocked_by`: words for the shard or worker that alignment waits for."""
        now_ms, progress_of = self._dependencies.clock.now_ms(), LineageProgress(self._table.states()).of
        limits = self._dependencies.settings.budget
        observed = [
            (
                entry.shard,
                entry.state,
                check_own_shard(
                    entry, progress_of(entry.shard), now_ms, self._fresh_ms, why_blocked(entry, limits), blocked_by
                ),
            )
            for entry in self._table
        ]
        return await self._with_tips(observed)

    async def _with_tips(self, observed: Sequence[CheckedShard]) -> list[UnreadFinding]:
        """Ask the service about each shard whose check could not tell whether it has unread records. Return the findings of all shards."""
        conclusive = [observation for _, _, observation in observed if observation.unread is not None]
        inconclusive = [each for each in observed if each[2].unread is None]
        for start in range(0, len(inconclusive), PARALLEL_TIP_REQUESTS):
            some = inconclusive[start : start + PARALLEL_TIP_REQUESTS]
            conclusive += await asyncio.gather(*(self._with_tip(*each) for each in some))
        return conclusive

    async def _with_tip(self, shard: Shard, state: ShardState, observation: UnreadFinding) -> UnreadFinding:
        unread = await self._has_unread(shard, state.starting_position(False))
        return UnreadFinding(observation.key, observation.progress, unread, observation.reason)

    async def _has_unread(self, shard: Shard, position: StartingPosition) -> bool | None:
        if self._dependencies.tip is None:
            return None
        try:
            tip = await self._dependencies.tip(shard, position)
        except RecordPublisherError as error:
            log.info(
                "the tip of %s cannot be read, so it is not known whether it has unread records: %s",
                shard.key,
                error,
                extra=log_extra(shard.key),
            )
            return None
        return None if tip is None else tip.has_unread
