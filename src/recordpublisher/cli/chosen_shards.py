"""`tail --shard`: reads chosen shards of one stream, without their parents and children."""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.initial_position import from_the_oldest, passed_initial_position
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch

from .shard_tree import known_shard


async def read_chosen_shards(
    stream: str,
    shard_ids: Sequence[str],
    sequence_number: str | None,
    properties: Properties,
    bounds: Bounds,
    take: Callable[[RecordBatch], Awaitable[bool]],
    timestamp_assigner: Callable[[Record], int] | None,
) -> None:
    """Pass the batches of the shards to `take` until it returns False, a bound is met, or the shards end.

    Starts at the sequence number; without one where `flink.stream.initpos` says. Raises: ConfigurationError for an unknown shard; as
    `rp.stream`.
    """
    properties.check()
    start = passed_initial_position(
        from_the_oldest(properties) if bounds.stop_at_tip else properties, SystemClock().now_ms()
    )
    if sequence_number is not None:
        start = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, sequence_number)
    reader = BoundedReader(properties, timestamp_assigner=timestamp_assigner)
    try:
        listed = await reader.list_shards(stream)
        starts = await Starts(start).pinned(lambda: reader.server_time_ms(stream))
        chosen = [known_shard(each, listed, "--shard", "a shard of the stream") for each in shard_ids]
        states = {shard: starts.of(shard) for shard in chosen}
        # a run with a limit for each shard ends with these shards; without one it waits for their children
        bounds = replace(bounds, shard_limits=dict.fromkeys((shard.key for shard in states), sys.maxsize))
        with contextlib.suppress(_EnoughError):
            await reader.read(states, _TakingSink(take), bounds)
    finally:
        await reader.close()


class _TakingSink(Sink):
    def __init__(self, take: Callable[[RecordBatch], Awaitable[bool]]) -> None:
        self._take = take

    async def write(self, batch: RecordBatch) -> None:
        if not await self._take(batch):
            raise _EnoughError


class _EnoughError(Exception):
    """No more batches are wanted."""
