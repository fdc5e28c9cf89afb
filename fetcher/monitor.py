"""Monitor: looks from time to time for shards that are written to and not emitted, and for a global watermark that stands still (A2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..publishers.errors import RecordPublisherError
from ..publishers.positions import StartingPosition
from ..publishers.shards import Shard
from .alarms import Alarm, AlarmBoard, AlarmKind
from .alignment import Alignment
from .elsewhere import guarded, unread_by
from .parts import FetcherParts
from .retention import Retention
from .seeding import seeded_states
from .shard_state import ShardState
from .shard_table import ShardTable, Stage
from .sink import Sink
from .snapshot import union
from .standing import Standing
from .standstill import Standstill
from .unread import ShardSight, UnreadWatch, family_mark, sight_of
from .waited_for import waited_for

log = logging.getLogger("recordpublisher.alarm")

LOOKS = 10
"""So many looks in an alarm interval."""
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
"""Between two looks."""
FRESH_SECONDS = 7.0
"""An answer at the tip is believed for so long at least: a healthy subscription says something about every 5 s."""
AT_ONCE = 8
"""Shards whose tip is looked at side by side."""

Sight = tuple[Shard, ShardState, ShardSight]
"""What is seen of a shard, and where a look for its tip would start."""


class Emitted(Protocol):
    """Who knows how many records were emitted."""

    records: int


class Monitor:
    """Gathers what is seen of each shard, own and guarded ones; the decisions are in `unread.py` and `standstill.py`.

    Costs no call while own shards are read: a tip is asked for only where reads have said nothing, and for guarded shards.
    """

    def __init__(self, parts: FetcherParts, table: ShardTable, alignment: Alignment, emitted: Emitted) -> None:
        self._parts = parts
        self._table = table
        self._alignment = alignment
        self._emitted = emitted
        interval_ms = parts.settings.alarm_interval_ms
        self._is_off = interval_ms < 0
        self._seconds = min(max(interval_ms / 1000 / LOOKS, LEAST_SECONDS), MOST_SECONDS)
        self._judges_stored = (
            parts.checkpoints is not None and 0 < parts.settings.checkpoint_interval_ms <= interval_ms / 2
        )
        self._fresh_ms = round(1000 * max(2 * self._seconds, FRESH_SECONDS))
        self._unread = UnreadWatch(interval_ms, 2 * self._seconds)
        self._standstill = Standstill(2 * self._seconds)
        self._alone_for = Standing(2 * self._seconds)
        self.board = AlarmBoard(interval_ms, parts.on_alarm)
        self.retention = Retention(parts)
        self.start = parts.start
        """Where shards without a state begin: the pinned start of the job."""

    @property
    def stands_ms(self) -> int:
        """For how long the global watermark has stood while records went on or were held."""
        return round(self._standstill.seconds * 1000)

    async def run(self) -> None:
        """Look until cancelled."""
        while not self._is_off:
            await asyncio.sleep(self._seconds)
            try:
                await self.look()
            except Exception:
                log.exception("a look for unread shards failed; the job goes on")

    async def look(self) -> None:
        """One look; trouble on the way leaves what is not known as it was, and never ends the job."""
        parts, listed = self._parts, self._table.listed().values()
        others = guarded(listed, self._own_keys(), parts.assigner, parts.subtask, parts.parallelism)
        states = await self._states(bool(others) or self._waits_for_others())
        sights = await self._completed([*self._own(states), *self._elsewhere(others, states)])
        found = self._unread.look(sights, parts.clock.monotonic())
        self.board.show([*found, *self._stalled(), *self._alone()])

    def _own(self, states: Mapping[str, ShardState]) -> Iterator[Sight]:
        now_ms, fresh_ms, holder = self._parts.clock.now_ms(), self._fresh_ms, self._waited_for()
        for entry in self._table:
            mark = family_mark(entry.shard, states)
            yield entry.shard, entry.state, sight_of(entry, mark, now_ms, fresh_ms, holder)

    def _elsewhere(self, shards: Mapping[str, tuple[Shard, int]], states: Mapping[str, ShardState]) -> Iterator[Sight]:
        """Shards that this subtask guards, in the light of what the whole job has stored."""
        parts = self._parts
        missing, left_out = parts.tracker.missing(), parts.tracker.left_out()
        for key, (shard, owner) in shards.items():
            reason = unread_by(owner, parts.parallelism, missing, left_out, self._judges_stored)
            state = states.get(key)
            if reason is not None and state is not None and not state.ended and not parts.tracker.is_finished(key):
                unread = False if self._was_at_tip(state) else None
                yield shard, state, ShardSight(key, family_mark(shard, states), unread, reason)

    def _waits_for_others(self) -> bool:
        """Whether a shard waits for parents of another subtask: whether those are read is in the store only."""
        waiting = [entry for entry in self._table if entry.stage is Stage.WAITING]
        return any(
            f"{each.shard.stream}/{parent}" not in self._table for each in waiting for parent in each.shard.parents
        )

    def _own_keys(self) -> set[str]:
        return {entry.key for entry in self._table}

    def _was_at_tip(self, state: ShardState) -> bool:
        return state.tip_ms is not None and self._parts.clock.now_ms() - state.tip_ms < self._fresh_ms

    async def _states(self, with_others: bool) -> Mapping[str, ShardState]:
        """Own states, and on request that of every listed shard: as its owner stored it, else where it would begin."""
        parts, own = self._parts, self._table.states()
        if not with_others:
            return own
        try:
            stored = [] if parts.checkpoints is None else await parts.checkpoints.load()
            restored = union(stored, parts.factory.order_of)
        except RecordPublisherError as error:
            log.warning("what other subtasks have stored cannot be read, their shards are not watched: %s", error)
            return own
        return {**seeded_states(self._table.listed().values(), restored, self.start), **own}

    async def _completed(self, sights: Sequence[Sight]) -> list[ShardSight]:
        """Ask for the tip where a sight is open."""
        known = [sight for _, _, sight in sights if sight.unread is not None]
        open_ones = [each for each in sights if each[2].unread is None]
        for start in range(0, len(open_ones), AT_ONCE):
            some = open_ones[start : start + AT_ONCE]
            known += await asyncio.gather(*(self._with_tip(*each) for each in some))
        return known

    async def _with_tip(self, shard: Shard, state: ShardState, sight: ShardSight) -> ShardSight:
        unread = await self._has_unread(shard, state.starting_position(False))
        return ShardSight(sight.key, sight.emitted, unread, sight.reason)

    async def _has_unread(self, shard: Shard, position: StartingPosition) -> bool | None:
        if self._parts.tip is None:
            return None
        try:
            tip = await self._parts.tip(shard, position)
        except RecordPublisherError as error:
            log.info("the tip of %s is not known: %s", shard.key, error)
            return None
        return None if tip is None else tip.has_unread

    def _stalled(self) -> list[Alarm]:
        """The global watermark, where somebody is there who waits for it: alignment, or a sink that listens to watermarks."""
        parts = self._parts
        entries = list(self._table)
        value, now = self._alignment.global_watermark, parts.clock.monotonic()
        seconds = self._standstill.look(value, entries, self._emitted.records, now)
        is_used = parts.settings.lookahead_ms is not None or type(parts.sink).watermark is not Sink.watermark
        if not is_used or seconds * 1000 < parts.settings.alarm_interval_ms:
            return []
        reason = f"it stands at {value}, waiting for {self._waited_for()}"
        return [Alarm(AlarmKind.STALLED, "global watermark", round(seconds * 1000), reason)]

    def _alone(self) -> list[Alarm]:
        """Not aligned with the others (W10): an alarm at once."""
        if not self._alignment.is_alone:
            self._alone_for.over()
            return []
        seconds = self._alone_for.saw(True, self._parts.clock.monotonic())
        reason = "records are not aligned with those of other subtasks"
        return [Alarm(AlarmKind.ALONE, "tracker", round(seconds * 1000), reason)]

    def _waited_for(self) -> str:
        return waited_for(self._parts.tracker, self._alignment.holder, self._parts.subtask)
