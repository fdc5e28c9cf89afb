"""Kinesis records to user records (S4): aggregates of the KPL are taken apart, all others pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ..positions import SequenceNumber, StartingPosition
from ..records import UserRecord
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard
from .kpl_format import MAGIC, Aggregate, parse_aggregate

YIELD_EVERY = 4096
"""Sub-records between two turns for the rest of the loop (F1): about 2 ms."""


class DistributionPort(Protocol):
    """What de-aggregation asks of the service."""

    async def distributes_by_key(self, stream: str) -> bool:
        """Whether keys decide the shard of a record: not on streams (name or ARN) with AUTO record distribution (S4)."""
        ...


async def _distributes_by_key() -> bool:
    return True


class Deaggregator:
    """Takes the records of one shard apart, in order, and counts.

    `distributes_by_key` is asked, when the first foreign sub-record shows up, whether the stream distributes records by key; where it does
    not (AUTO record distribution) no sub-record is foreign.
    """

    def __init__(
        self,
        shard: Shard,
        metrics: ShardMetrics,
        distributes_by_key: Callable[[], Awaitable[bool]] = _distributes_by_key,
    ) -> None:
        self._range = shard.hash_range
        self._takes_all = shard.hash_range == HashRange()
        self._metrics = metrics
        self._distributes_by_key = distributes_by_key
        self._worked = 0

    async def user_records(self, raw: list[UserRecord], start: StartingPosition) -> list[UserRecord]:
        """The user records in `raw` that lie behind `start`; long work yields to the loop.

        Sub-sequence numbers count before sub-records are dropped, so they do not depend on who reads. A batch without aggregates costs
        one comparison for each record: few payloads sort behind the magic bytes, and a comparison costs a third of `startswith`.
        """
        if not any([record.data.startswith(MAGIC) for record in raw if record.data >= MAGIC]):  # noqa: C419 - a list is faster
            return records_behind(raw, start.skip_through)
        records: list[UserRecord] = []
        for record in raw:
            aggregate = parse_aggregate(record.data)
            if aggregate is None:
                records.append(record)
            else:
                await self._take_apart(record, aggregate, records)
        return records_behind(records, start.skip_through)

    async def _take_apart(self, record: UserRecord, aggregate: Aggregate, into: list[UserRecord]) -> None:
        owned = await self._owned(aggregate)
        for first in range(0, len(aggregate), YIELD_EVERY):
            stop = min(first + YIELD_EVERY, len(aggregate))
            into += aggregate.sub_records(record, first, stop, owned)
            self._worked += stop - first
            if self._worked >= YIELD_EVERY:
                self._worked = 0
                await asyncio.sleep(0)

    async def _owned(self, aggregate: Aggregate) -> list[bool] | None:
        """Which sub-records the shard owns by their hash keys, None: all. The KPL sends the others again, to their own shard."""
        owned = None if self._takes_all else aggregate.owned_by(self._range)
        if owned is not None and not await self._distributes_by_key():
            self._takes_all, owned = True, None
        if owned is not None:
            self._metrics.foreign_sub_records += owned.count(False)
        return owned


def records_behind(records: list[UserRecord], done: SequenceNumber | None) -> list[UserRecord]:
    """The records behind a place inside an aggregated record (P2), all without one.

    This is the only place that drops what a restart inside an aggregate reads again.
    """
    if done is None:
        return records
    return [r for r in records if r.sequence_number != done.sequence or r.sub_sequence_number > done.sub_sequence]
