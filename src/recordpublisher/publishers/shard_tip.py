"""How far a position lies behind a shard's tip, by one small read and without reading what lies between (A2)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .kinesis.ports import PollingPort, ReadResponse
from .positions import StartingPosition
from .records import to_millis
from .shards import Shard

MAX_READS = 5
"""Answers may be empty on the way to a record (service documentation); after so many the look gives up."""
PAUSE_SECONDS = 0.25
"""Between two reads: the 5 calls a second of a shard are shared with whoever reads it."""


@dataclass(frozen=True, slots=True)
class TipDistance:
    """What one look said.

    `has_unread`: a record lies behind the position; `oldest_ms` its arrival (epoch ms). `millis_behind`: what the service said of the
    place that the look reached, ms. `is_end`: the shard is closed and nothing lies behind the position.
    """

    has_unread: bool
    oldest_ms: int | None = None
    millis_behind: int = 0
    is_end: bool = False


async def measure_tip_distance(port: PollingPort, shard: Shard, position: StartingPosition) -> TipDistance | None:
    """Read one record behind `position`; None when some empty answers in a row did not reach the tip.

    Two calls, as a rule: one for the iterator, one GetRecords with Limit 1. Raises: KinesisError, nothing is retried.
    """
    iterator: str | None = await port.get_shard_iterator(shard, position)
    for _ in range(MAX_READS):
        if iterator is None:
            break
        answer = await port.get_records(shard, iterator, 1)
        tip = _tip_of(answer)
        if tip is not None:
            return tip
        iterator = answer.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _tip_of(answer: ReadResponse) -> TipDistance | None:
    behind = answer.millis_behind_latest or 0
    if answer.records:
        return TipDistance(True, to_millis(answer.records[0].arrival), behind)
    if answer.next_iterator is None:
        return TipDistance(False, is_end=True)
    return TipDistance(False) if behind == 0 else None
