"""Selects the batches of a frame by position or event time, and groups them into columns of a good size."""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import groupby

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.records import RecordBatch

ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 16 * 2**20
"""Memory of the records of one Arrow batch. When it is reached, the batch is made with fewer rows."""


async def until(
    batches: AsyncGenerator[RecordBatch, None], ends: Mapping[str, ShardState]
) -> AsyncGenerator[RecordBatch, None]:
    """Yield the records up to the positions in `ends`, by `Shard.key`. End the read when it has passed all of them.

    The end of a shard is never passed, because no record follows it. With such a position the read does not end here.
    """
    waited_for = set(ends)
    async with aclosing(batches):
        async for batch in batches:
            key = batch.shard.key
            count = _rows_until(batch, ends[key]) if key in ends else 0
            if count:
                yield batch.slice(0, count)
            if count < len(batch) and key in waited_for:
                waited_for.remove(key)
                if not waited_for:
                    return


def _rows_until(batch: RecordBatch, end: ShardState) -> int:
    if end.ended or end.position is None:
        return len(batch) if end.ended else 0
    last = int(end.position.sequence), end.position.sub_sequence if end.position.is_inside_aggregate else math.inf
    numbers = zip(map(int, batch.sequence_numbers), batch.sub_sequence_numbers, strict=True)
    return next((place for place, number in enumerate(numbers) if number > last), len(batch))


async def within(
    batches: AsyncGenerator[RecordBatch, None], begin_ms: int, end_ms: int
) -> AsyncGenerator[RecordBatch, None]:
    """Yield the records whose event time is at least `begin_ms` and below `end_ms` (epoch ms)."""
    async with aclosing(batches):
        async for batch in batches:
            chosen = [begin_ms <= time < end_ms for time in batch.event_time_column]
            place = 0
            for is_chosen, run in groupby(chosen):
                first, place = place, place + len([*run])
                if is_chosen:
                    yield batch.slice(first, place)


async def grouped(batches: AsyncGenerator[RecordBatch, None]) -> AsyncGenerator[list[RecordBatch], None]:
    """Yield groups of batches that are large enough for columns of a good size."""
    group: list[RecordBatch] = []
    async with aclosing(batches):
        async for batch in batches:
            group += [batch] if len(batch) else []
            held_bytes = sum(waiting.held_bytes for waiting in group)
            if sum(map(len, group)) >= ROWS_PER_BATCH or held_bytes >= BYTES_PER_BATCH:
                yield group
                group = []
        if group:
            yield group
