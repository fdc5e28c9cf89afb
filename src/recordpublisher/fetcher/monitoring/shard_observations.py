"""ShardObservations: what is seen of each shard, own ones and those that this subtask looks after for others (A2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from ..checkpoints.restore import initial_states
from ..checkpoints.snapshot import merge_snapshots
from ..dependencies import FetcherDependencies
from ..shards.assignment import missing_reader_reason, monitored_shards
from ..shards.lineage import parent_keys
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardEntry, ShardStage, ShardTable
from ..sink import State
from .unread_shards import ShardObservation, lineage_progress, sight_of

log = logging.getLogger("recordpublisher.alarm")

FRESH_SECONDS = 7.0
"""An answer at the tip is believed for so long at least: a healthy subscription says something about every 5 s."""
AT_ONCE = 8
"""Shards whose tip is looked at side by side."""

Sight = tuple[Shard, ShardState, ShardObservation]
"""What is seen of a shard, and where a look for its tip would start."""


class ShardObservations:
    """Owns what the other subtasks were last seen to have stored.

    Costs no call while own shards are read: a tip is asked for only where reads have said nothing, and for guarded shards. What others
    have stored says something only when checkpoints come at least twice in an alarm interval.
    """

    def __init__(self, parts: FetcherDependencies, table: ShardTable, fresh_seconds: float) -> None:
        self._parts = parts
        self._table = table
        self._fresh_ms = round(1000 * max(fresh_seconds, FRESH_SECONDS))
        interval_ms, checkpoint_ms = parts.settings.alarm_interval_ms, parts.settings.checkpoint_interval_ms
        self._judges_stored = parts.checkpoints is not None and 0 < checkpoint_ms <= interval_ms / 2
        self._stored: list[State] = []
        self._load_at = float("-inf")
        self.start = parts.start
        """Where shards without a state begin: the pinned start of the job."""

    async def gather(self, waited_for: str) -> list[ShardObservation]:
        """Look at every shard; `waited_for` names what alignment waits for."""
        parts, own = self._parts, {entry.key for entry in self._table}
        others = monitored_shards(self._table.listed().values(), own, parts.assigner, parts.subtask, parts.parallelism)
        states = await self._states(bool(others) or any(map(self._waits_for_others, self._table)))
        return await self._completed([*self._own(states, waited_for), *self._elsewhere(others, states)])

    def _own(self, states: Mapping[str, ShardState], waited_for: str) -> Iterator[Sight]:
        now_ms = self._parts.clock.now_ms()
        for entry in self._table:
            if self._judges_stored or not self._waits_for_others(entry):
                mark = lineage_progress(entry.shard, states)
                yield entry.shard, entry.state, sight_of(entry, mark, now_ms, self._fresh_ms, waited_for)

    def _elsewhere(self, shards: Mapping[str, tuple[Shard, int]], states: Mapping[str, ShardState]) -> Iterator[Sight]:
        """Shards that this subtask guards, in the light of what the whole job has stored."""
        parts = self._parts
        missing, timed_out = parts.tracker.missing_subtasks(), parts.tracker.timed_out_subtasks()
        for key, (shard, owner) in shards.items():
            reason = missing_reader_reason(owner, parts.parallelism, missing, timed_out, self._judges_stored)
            state = states.get(key)
            if reason is not None and state is not None and not state.ended and not parts.tracker.is_finished(key):
                unread = False if self._was_at_tip(state) else None
                yield shard, state, ShardObservation(key, lineage_progress(shard, states), unread, reason)

    def _waits_for_others(self, entry: ShardEntry) -> bool:
        """Whether a shard waits for parents of another subtask: whether those are read is in the store only."""
        parents = parent_keys(entry.shard)
        return entry.stage is ShardStage.WAITING and any(parent not in self._table for parent in parents)

    def _was_at_tip(self, state: ShardState) -> bool:
        return state.tip_ms is not None and self._parts.clock.now_ms() - state.tip_ms < self._fresh_ms

    async def _states(self, with_others: bool) -> Mapping[str, ShardState]:
        """Own states, and on request that of every listed shard: as its owner stored it, else where it would begin."""
        parts, own = self._parts, self._table.states()
        if not with_others:
            return own
        try:
            restored = merge_snapshots(await self._stored_lately(), parts.factory.order_of)
        except RecordPublisherError as error:
            log.warning("what other subtasks have stored cannot be read, their shards are not watched: %s", error)
            return own
        return {**initial_states(self._table.listed().values(), restored, self.start), **own}

    async def _stored_lately(self) -> list[State]:
        """What the whole job has stored; asked for four times an interval, since it is one read for each subtask."""
        checkpoints, now = self._parts.checkpoints, self._parts.clock.monotonic()
        if checkpoints is None or not self._judges_stored:
            return []
        if now >= self._load_at:
            self._stored = await checkpoints.load()
            self._load_at = now + self._parts.settings.alarm_interval_ms / 4000
        return self._stored

    async def _completed(self, sights: Sequence[Sight]) -> list[ShardObservation]:
        """Ask for the tip where a sight is open."""
        known = [sight for _, _, sight in sights if sight.unread is not None]
        open_ones = [each for each in sights if each[2].unread is None]
        for start in range(0, len(open_ones), AT_ONCE):
            some = open_ones[start : start + AT_ONCE]
            known += await asyncio.gather(*(self._with_tip(*each) for each in some))
        return known

    async def _with_tip(self, shard: Shard, state: ShardState, sight: ShardObservation) -> ShardObservation:
        unread = await self._has_unread(shard, state.starting_position(False))
        return ShardObservation(sight.key, sight.emitted, unread, sight.reason)

    async def _has_unread(self, shard: Shard, position: StartingPosition) -> bool | None:
        if self._parts.tip is None:
            return None
        try:
            tip = await self._parts.tip(shard, position)
        except RecordPublisherError as error:
            log.info("the tip of %s is not known: %s", shard.key, error)
            return None
        return None if tip is None else tip.has_unread
