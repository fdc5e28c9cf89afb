"""Deaggregator: the responses of one shard to batches of user records (S4). KPL aggregates are expanded, other records pass unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..kinesis.ports import ReadResponse
from ..positions import SequenceNumber, StartingPosition
from ..records import RECORD_OVERHEAD_BYTES, RecordBatch, UserRecord
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard
from .kpl_format import MAGIC, Aggregate, parse_aggregate
from .loop_yielder import STEP, LoopYielder
from .owned_keys import OwnedKeys
from .record_distribution import ForeignSubRecords

MAX_BATCH_BYTES = 4 * 2**20
"""A batch that takes this much memory (P6) gets no more sub-records: the next batch does."""


async def _drop_foreign(_arrival_ms: float, _is_misplaced: bool) -> ForeignSubRecords:
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
        foreign_sub_records: Callable[[float, bool], Awaitable[ForeignSubRecords]] = _drop_foreign,
    ) -> None:
        self._shard = shard
        self._takes_all = shard.hash_range == HashRange()
        self._metrics = metrics
        self._foreign_sub_records = foreign_sub_records
        self._yielder = LoopYielder()

    def batches(
        self, response: ReadResponse, read_position: SequenceNumber | None, start: StartingPosition
    ) -> ResponseBatches:
        """The batches of a response that was read from `start`; `read_position` is the position after it. Counts the response."""
        batches = ResponseBatches(self, self._shard, self._metrics, response, read_position, start.skip_through)
        self._metrics.count_response(batches.raw_count, batches.raw_bytes, response.millis_behind_latest)
        return batches

    async def open(self, record: UserRecord, done: SequenceNumber | None) -> OpenAggregate | None:
        """The aggregate in a record, behind the position `done`. None: it is a plain record."""
        aggregate = await parse_aggregate(record.data)
        if aggregate is None:
            return None
        keys = None if self._takes_all else await OwnedKeys.of(aggregate, self._shard.hash_range)
        first = done.sub_sequence + 1 if done is not None and done.sequence == record.sequence_number else 0
        return OpenAggregate(record, aggregate, keys, min(first, aggregate.length))

    async def read_step(self, opened: OpenAggregate) -> list[UserRecord]:
        """The user records among an aggregate's next `STEP` sub-records. Long work yields to the event loop.

        Sub-sequence numbers count dropped sub-records too, so they are the same for every reader.
        """
        first, parts = opened.done, opened.aggregate.read(opened.done, opened.done + STEP)
        owned = None if opened.keys is None else opened.keys.owned(parts)
        if owned is not None and await self._keeps_foreign(opened, owned.count(False)):
            owned = None
        opened.done += len(parts.data)
        if self._yielder.is_due(len(parts.data)):
            await asyncio.sleep(0)
        return opened.aggregate.user_records(parts, opened.record, first, owned)

    async def _keeps_foreign(self, opened: OpenAggregate, count: int) -> bool:
        """Whether so many foreign sub-records are kept. Where keys decide, the KPL sends them again, to their own shard."""
        if opened.decision is None:
            opened.decision = await self._foreign_sub_records(opened.record.arrival * 1000, opened.is_misplaced)
        if opened.decision is ForeignSubRecords.DROP:
            self._metrics.foreign_sub_records += count
            return False
        self._takes_all = opened.decision is ForeignSubRecords.KEEP
        if opened.decision is ForeignSubRecords.KEEP_UNCHECKED:
            self._metrics.unchecked_sub_records += count
        return True


class OpenAggregate:
    """An aggregate that is being expanded. Owns how many of its sub-records are `done`, and what was decided about foreign ones.

    `keys` None: no sub-record is foreign.
    """

    def __init__(self, record: UserRecord, aggregate: Aggregate, keys: OwnedKeys | None, done: int) -> None:
        self.record = record
        self.aggregate = aggregate
        self.keys = keys
        self.done = done
        self.decision: ForeignSubRecords | None = None

    @property
    def is_misplaced(self) -> bool:
        """Whether the first sub-record is foreign, whose hash key producers give to the whole record."""
        return self.keys is not None and self.keys.owned(self.aggregate.read(0, 1)) is not None

    @property
    def is_done(self) -> bool:
        """Whether every sub-record was read."""
        return self.done == self.aggregate.length

    @property
    def done_bytes(self) -> int:
        """The part of the record's bytes for the sub-records that are done."""
        return len(self.record.data) * self.done // max(self.aggregate.length, 1)

    @property
    def position(self) -> SequenceNumber:
        """The position after what is done (P2)."""
        sequence = self.record.sequence_number
        return SequenceNumber(sequence) if self.is_done else SequenceNumber(sequence, self.done - 1)


class ResponseBatches:
    """The batches of one response, in order. Owns the part of it that is not expanded yet.

    A response is one batch, unless its sub-records would take more memory than `MAX_BATCH_BYTES`. Then each further batch is made when
    it is asked for. Only the last one may be at the tip, and only it carries the child shards.
    """

    def __init__(
        self,
        deaggregator: Deaggregator,
        shard: Shard,
        metrics: ShardMetrics,
        response: ReadResponse,
        read_position: SequenceNumber | None,
        done: SequenceNumber | None,
    ) -> None:
        """`done`: the sub-record up to which its record was done before (P2); None outside an aggregate.

        Without aggregates a batch costs one comparison for each record: few payloads compare greater than the magic bytes, and this is
        three times as fast as `startswith`.
        """
        raw = response.records
        has_aggregates = any([record.data.startswith(MAGIC) for record in raw if record.data >= MAGIC])  # noqa: C419 - a list is faster
        self._deaggregator = deaggregator
        self._shard = shard
        self._metrics = metrics
        self._plain = None if has_aggregates else raw
        self._reversed = raw[::-1] if has_aggregates else []  # taken from its end, so that what was expanded is freed
        self._opened: OpenAggregate | None = None
        self._millis_behind_latest = response.millis_behind_latest
        self._child_shards = response.child_shards
        self._read_position = read_position
        self._done = done
        self._is_last_made = False
        self.raw_count = len(raw)
        self.raw_bytes = sum([len(record.data) for record in raw])
        self.held_bytes = 0
        """Memory of the batches so far, in bytes (P6)."""

    def __aiter__(self) -> ResponseBatches:
        return self

    async def __anext__(self) -> RecordBatch:
        if self._is_last_made:
            raise StopAsyncIteration
        if self._plain is None:
            batch = await self._expand()
        else:
            batch = self._last_batch(records_after(self._plain, self._done), self.raw_count, self.raw_bytes)
            self._plain = None
        self.held_bytes += batch.held_bytes
        self._metrics.number_of_deaggregated_records += len(batch)
        return batch

    async def _expand(self) -> RecordBatch:
        """The next batch of user records. A Kinesis record counts in the batch in which it begins."""
        records: list[UserRecord] = []
        raw_count = raw_bytes = 0
        raw, done, opened = self._reversed, self._done, self._opened
        while opened is not None or raw:
            if opened is None:
                record = raw.pop()
                raw_count += 1
                if record.data.startswith(MAGIC):
                    opened = await self._deaggregator.open(record, done)
                if opened is None:
                    raw_bytes += len(record.data)
                    if done is None or record.sequence_number != done.sequence:
                        records.append(record)
                    continue
            current, bytes_before = opened, opened.done_bytes
            records += await self._deaggregator.read_step(opened)
            raw_bytes += opened.done_bytes - bytes_before
            if opened.is_done:
                opened = None
            is_full = raw_bytes + RECORD_OVERHEAD_BYTES * len(records) >= MAX_BATCH_BYTES
            if is_full and records and (opened is not None or raw):
                self._opened = opened
                behind = self._millis_behind_latest or None  # not 0: more is to come
                return RecordBatch(self._shard, records, behind, current.position, (), raw_count, raw_bytes)
        return self._last_batch(records, raw_count, raw_bytes)

    def _last_batch(self, records: list[UserRecord], raw_count: int, raw_bytes: int) -> RecordBatch:
        self._is_last_made = True
        return RecordBatch(
            self._shard,
            records,
            self._millis_behind_latest,
            self._read_position,
            self._child_shards,
            raw_count,
            raw_bytes,
        )


def records_after(records: list[UserRecord], done: SequenceNumber | None) -> list[UserRecord]:
    """The records after a position inside an aggregated record (P2); all when `done` is None."""
    if done is None:
        return records
    return [r for r in records if r.sequence_number != done.sequence or r.sub_sequence_number > done.sub_sequence]
