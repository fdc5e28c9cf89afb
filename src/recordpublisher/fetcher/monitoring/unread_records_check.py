"""Checks whether shards of this subtask, and those it monitors for others, have unread records and emit none (A2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from ..checkpoints.initial_states import initial_states
from ..checkpoints.snapshot import merge_snapshots
from ..checkpoints.starts import Starts
from ..dependencies import FetcherDependencies
from ..pipeline.read_block import why_blocked
from ..shards.assignment import missing_reader_reason
from ..shards.lineage import parent_keys
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardTable
from ..sink import State
from .stuck_shard_detector import LineageProgress, UnreadCheck, observe_own_shard

log = logging.getLogger("recordpublisher.alarm")

MIN_FRESH_SECONDS = 7.0
"""A read at the tip is valid for at least this time: a healthy subscription sends an event about every 5 s (seconds)."""
PARALLEL_TIP_REQUESTS = 8

Monitored = Callable[[Iterable[Shard]], Mapping[str, tuple[Shard, int]]]
"""Returns those of the listed shards that this subtask monitors for others, by key, each with the subtask that owns it."""
Observed = tuple[Shard, ShardState, UnreadCheck]
"""An observation, with the shard and its state. If it is inconclusive, the shard's tip is requested from the position of that state."""


class UnreadRecordsCheck:
    """Owns what the other subtasks have last stored.

    While this subtask's shards are read, the check makes no call: a tip is requested only for a shard whose reads do not return, and for
    monitored shards. What others have stored is conclusive only if checkpoints are taken at least twice in an alarm interval.
    """

    def __init__(
        self, dependencies: FetcherDependencies, table: ShardTable, fresh_seconds: float, monitored: Monitored
    ) -> None:
        self._dependencies = dependencies
        self._table = table
        self._monitored = monitored
        self._fresh_ms = round(1000 * max(fresh_seconds, MIN_FRESH_SECONDS))
        settings = dependencies.settings
        has_store = dependencies.stores is not None
        self._can_judge_others = has_store and 0 < settings.checkpoint_interval_ms <= settings.alarm_interval_ms / 2
        self._stored: list[State] = []
        self._next_load_at = float("-inf")
        self._starts = dependencies.starts

    def start_at(self, starts: Starts) -> None:
        """Set where shards without a state begin: the pinned starts of the job."""
        self._starts = starts

    async def observe_all(self, blocked_by: str) -> list[UnreadCheck]:
        """Observe every shard; `blocked_by` names what alignment waits for."""
        others = self._monitored(self._table.listed_shards().values())
        states = await self._states(bool(others) or any(map(self._waits_for_others, self._table)))
        return await self._with_tips([*self._own(states, blocked_by), *self._of_others(others, states)])

    def _own(self, states: Mapping[str, ShardState], blocked_by: str) -> Iterator[Observed]:
        now_ms, progress_of = self._dependencies.clock.now_ms(), LineageProgress(states).of
        limits = self._dependencies.settings.budget
        for entry in self._table:
            if self._can_judge_others or not self._waits_for_others(entry):
                progress = progress_of(entry.shard)
                observation = observe_own_shard(
                    entry, progress, now_ms, self._fresh_ms, why_blocked(entry, limits), blocked_by
                )
                yield entry.shard, entry.state, observation

    def _of_others(
        self, shards: Mapping[str, tuple[Shard, int]], states: Mapping[str, ShardState]
    ) -> Iterator[Observed]:
        """Observe monitored shards, based on what the whole job has stored."""
        tracker, parallelism = self._dependencies.tracker, self._dependencies.parallelism
        missing, timed_out = tracker.missing_subtasks(), tracker.timed_out_subtasks()
        progress_of = LineageProgress(states).of
        for key, (shard, owner) in shards.items():
            reason = missing_reader_reason(owner, parallelism, missing, timed_out, self._can_judge_others)
            state = states.get(key)
            if reason is not None and state is not None and not state.ended and not tracker.is_finished(key):
                unread = False if self._was_at_tip(state) else None
                yield shard, state, UnreadCheck(key, progress_of(shard), unread, reason)

    def _waits_for_others(self, entry: ShardEntry) -> bool:
        """Return whether a shard waits for parents of another subtask. Only the store shows whether those parents are read."""
        is_waiting = entry.stage is ShardStage.WAITING
        return is_waiting and any(parent not in self._table for parent in parent_keys(entry.shard))

    def _was_at_tip(self, state: ShardState) -> bool:
        return state.tip_ms is not None and self._dependencies.clock.now_ms() - state.tip_ms < self._fresh_ms

    async def _states(self, with_others: bool) -> Mapping[str, ShardState]:
        """Return the states of this subtask's shards and, if `with_others`, of every listed shard.

        The state of another subtask's shard is the one that its owner stored, or else the one in which it would begin.
        """
        own = self._table.states()
        if not with_others:
            return own
        try:
            restored = merge_snapshots(await self._recently_stored(), self._dependencies.factory.order_of)
        except RecordPublisherError as error:
            log.warning("the state of other subtasks cannot be read, their shards are not monitored: %s", error)
            return own
        return {**initial_states(self._table.listed_shards().values(), restored, self._starts), **own}

    async def _recently_stored(self) -> list[State]:
        """Return what the whole job has stored. It is loaded four times in an interval only, because that is one read for each subtask."""
        checkpoints, now = self._dependencies.checkpoints, self._dependencies.clock.monotonic()
        if checkpoints is None or not self._can_judge_others:
            return []
        if now >= self._next_load_at:
            self._stored = await checkpoints.load()
            self._next_load_at = now + self._dependencies.settings.alarm_interval_ms / 4000
        return self._stored

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
