"""Detects shards that have unread records and emit nothing (A2), and workers that do not release shards (E5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from recordpublisher.publishers.shards import Shard, stream_of

from ..alarms import Alarm, AlarmKind
from ..leases.lease_counts import LeaseCounts
from ..pipeline.read_block import ReadBlock
from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_state import ShardState
from .stall_detector import UnchangedTimer


class UnreadCheck(msgspec.Struct, frozen=True):
    """The result of one check of one shard.

    - `progress`: changes whenever something of the shard was emitted.
    - `unread`: whether the shard has records that were not emitted. None if this check did not find out.
    - `reason`: which subtask should read the shard, or why nothing is emitted.
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
                )  # preliminary, until its parents are visited; also ends a cycle in a stored document
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
    """Observe a shard of this subtask, without a call to the service.

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
