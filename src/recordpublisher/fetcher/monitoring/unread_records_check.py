"""Checks whether shards of this process have unread records and emit none (A2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from ..dependencies import FetcherDependencies
from ..pipeline.read_block import why_blocked
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardTable
from .stuck_shard_detector import LineageProgress, UnreadCheck, observe_own_shard

log = logging.getLogger("recordpublisher.alarm")

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
