"""Deaggregator: Kinesis records to user records (S4). KPL aggregates are expanded, other records pass unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..positions import SequenceNumber, StartingPosition
from ..records import UserRecord
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard
from .kpl_format import MAGIC, Aggregate, parse_aggregate
from .record_distribution import ForeignSubRecords

YIELD_AFTER_SUB_RECORDS = 4096
"""Sub-records after which the event loop may run other tasks (F1): about 2 ms."""


async def _drop_foreign(_arrival_ms: float) -> ForeignSubRecords:
    return ForeignSubRecords.DROP


class Deaggregator:
    """Expands the aggregates of one shard, in order. Sub-records whose hash key belongs to another shard are dropped or kept.

    `foreign_sub_records` decides that for each record with such sub-records, by the record's arrival, epoch ms. Once keys do not decide
    the shard (AUTO record distribution), every sub-record is kept without a check.
    """

    def __init__(
        self,
        shard: Shard,
        metrics: ShardMetrics,
        foreign_sub_records: Callable[[float], Awaitable[ForeignSubRecords]] = _drop_foreign,
    ) -> None:
        self._range = shard.hash_range
        self._takes_all = shard.hash_range == HashRange()
        self._metrics = metrics
        self._foreign_sub_records = foreign_sub_records
        self._since_yield = 0

    async def user_records(self, raw: list[UserRecord], start: StartingPosition) -> list[UserRecord]:
        """Return the user records in `raw` after `start`. Long work yields to the event loop.

        Sub-sequence numbers count dropped sub-records too, so they are the same for every reader. A batch without aggregates costs one
        comparison for each record: few payloads compare greater than the magic bytes, and this is three times as fast as `startswith`.
        """
        if not any([record.data.startswith(MAGIC) for record in raw if record.data >= MAGIC]):  # noqa: C419 - a list is faster
            return records_after(raw, start.skip_through)
        records: list[UserRecord] = []
        for record in raw:
            aggregate = parse_aggregate(record.data)
            if aggregate is None:
                records.append(record)
            else:
                await self._expand(record, aggregate, records)
        return records_after(records, start.skip_through)

    async def _expand(self, record: UserRecord, aggregate: Aggregate, into: list[UserRecord]) -> None:
        owned = await self._owned_sub_records(record, aggregate)
        for first in range(0, len(aggregate), YIELD_AFTER_SUB_RECORDS):
            stop = min(first + YIELD_AFTER_SUB_RECORDS, len(aggregate))
            into += aggregate.sub_records(record, first, stop, owned)
            self._since_yield += stop - first
            if self._since_yield >= YIELD_AFTER_SUB_RECORDS:
                self._since_yield = 0
                await asyncio.sleep(0)

    async def _owned_sub_records(self, record: UserRecord, aggregate: Aggregate) -> list[bool] | None:
        """Which sub-records are kept (None: all). Where keys decide, the KPL sends foreign ones again, to their own shard."""
        owned = None if self._takes_all else aggregate.owned_by(self._range)
        if owned is None:
            return None
        decision = await self._foreign_sub_records(record.arrival * 1000)
        if decision is ForeignSubRecords.DROP:
            self._metrics.foreign_sub_records += owned.count(False)
            return owned
        self._takes_all = decision is ForeignSubRecords.KEEP
        if decision is ForeignSubRecords.KEEP_UNCHECKED:
            self._metrics.unchecked_sub_records += owned.count(False)
        return None


def records_after(records: list[UserRecord], done: SequenceNumber | None) -> list[UserRecord]:
    """The records after a position inside an aggregated record (P2); all when `done` is None.

    Only this function drops the sub-records that a restart inside an aggregate reads again.
    """
    if done is None:
        return records
    return [r for r in records if r.sequence_number != done.sequence or r.sub_sequence_number > done.sub_sequence]
