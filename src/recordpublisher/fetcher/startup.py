"""Opening a job: what is stored, which shards there are, where each starts (P3, S5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard

from .checkpoints.restore import (
    data_loss_error,
    initial_states,
    shards_missing_from_listing,
    shards_no_longer_listed,
    shards_past_retention,
)
from .checkpoints.snapshot import RestoredState, merge_snapshots, overlay, states_for_other_subtasks
from .dependencies import FetcherDependencies
from .shards.shard_state import ShardState
from .sink import SinkContext, State

log = logging.getLogger("recordpublisher.fetcher")
LOOKS, LOOK_SECONDS = 20, 1.0
"""How often a listing that is older than the state is asked for again, and the pause between; then it is believed."""


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """What a job starts from: listed shards, each one's state, the (pinned) start of new ones, the generation; the snapshots it found."""

    listed: Sequence[Shard]
    states: Mapping[str, ShardState]
    start: StartingPosition
    pinned_ms: int | None
    generation: int
    earlier: Sequence[State] = ()
    """What the last start of this subtask stored of shards that others own now, and have not stored yet (S5)."""

    @property
    def lowest_watermark(self) -> int | None:
        """Where a new generation's global watermark begins (W6)."""
        open_states = [state for state in self.states.values() if not state.ended]
        return min((state.watermark for state in open_states if state.watermark is not None), default=None)


async def open_job(parts: FetcherDependencies, context: SinkContext) -> OpenedJob:
    """Open the sink, restore, look for shards, pin a LATEST start.

    Of `restore=` and the state store the newer generation wins for each shard, so that a job started again with the same arguments goes
    on from its last checkpoint; what the sink stored wins over both.
    """
    stored = await parts.sink.open(context)
    generation, kept = (0, []) if parts.checkpoints is None else await parts.checkpoints.open()
    restored = merge_snapshots([*parts.restore, *kept], parts.factory.order_of)
    in_sink = [] if stored is None else [stored] if isinstance(stored, Mapping) else list(stored)
    if in_sink:
        restored = overlay(restored, merge_snapshots(in_sink, parts.factory.order_of))
    listed = await _listed(restored, parts)
    await _check_for_gaps(listed, restored, parts)
    start, pinned_ms = await _pinned_start(restored, parts)
    states = initial_states(listed, restored, start)
    foreign = {shard.key for shard in listed if parts.assigner(shard, parts.parallelism) != parts.subtask}
    earlier = states_for_other_subtasks([*kept, *in_sink], parts.subtask, foreign)
    return OpenedJob(listed, states, start, pinned_ms, max(generation, restored.generation + 1), earlier)


async def _listed(restored: RestoredState, parts: FetcherDependencies) -> Sequence[Shard]:
    """Every shard, listed again while the listing is older than the state: what it lacks would seem lost, or new."""
    for _ in range(LOOKS):
        listed = await parts.discovery.initial()
        unheard = shards_missing_from_listing(listed, restored, parts.streams)
        if not unheard:
            break
        log.warning(
            "the listing does not know these shards of the restored state, listing again: %s", ", ".join(unheard)
        )
        await asyncio.sleep(LOOK_SECONDS)
    return listed


async def _check_for_gaps(listed: Sequence[Shard], restored: RestoredState, parts: FetcherDependencies) -> None:
    oldest: dict[str, int | None] = {}
    if parts.oldest_retained is not None:
        oldest = {stream: await parts.oldest_retained(stream) for stream in restored.streams & set(parts.streams)}
    gone = shards_no_longer_listed(listed, restored, parts.streams) + shards_past_retention(listed, restored, oldest)
    if gone and not parts.settings.continue_on_data_loss:
        raise data_loss_error(gone, restored)
    if gone:
        log.error("%s; going on because flink.state.dataloss=CONTINUE", data_loss_error(gone, restored))


async def _pinned_start(restored: RestoredState, parts: FetcherDependencies) -> tuple[StartingPosition, int | None]:
    """LATEST becomes AT_TIMESTAMP once for the job, from the server's clock (P3)."""
    if parts.start.type is not PositionType.LATEST:
        return parts.start, restored.pinned_ms
    pinned_ms = restored.pinned_ms
    if pinned_ms is None:
        pinned_ms = await parts.pin_latest(parts.streams[0])
    return StartingPosition.at_timestamp(pinned_ms), pinned_ms


async def close_dependencies(parts: FetcherDependencies, *more: Awaitable[None]) -> None:
    """Close publishers, tracker, sink and state store, and await `more`. Raises: the first error, when all are closed."""
    stores = [] if parts.checkpoints is None else [parts.checkpoints.close()]
    every = [parts.factory.close(), parts.tracker.close(), parts.sink.close(), *stores, *more]
    for result in await asyncio.gather(*every, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
