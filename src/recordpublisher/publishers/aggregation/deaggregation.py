"""Deaggregator turns the responses of one shard into batches of user records (S4).

It expands KPL aggregates, and passes other records unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ..kinesis.ports import ReadResponse
from ..positions import SequenceNumber, StartingPosition
from ..records import RecordBatch, UserRecord, behind_after, columns_of, to_millis
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard
from ..skipped_records import SkippedRecordsLog
from .expanded_records import MAX_BATCH_BYTES, ExpandedRecords, records_after
from .kpl_format import LongAggregate, SubRecords, parse_aggregate
from .loop_yielder import STEP, LoopYielder
from .owned_keys import OwnedKeys
from .record_distribution import ForeignSubRecords

_WHY_DROPPED = (
    "their hash keys belong to other shards. The KPL puts such sub-records again after a reshard; a producer of another kind that "
    "aggregates must do so too, or put only keys of one shard into one record"
)

log = logging.getLogger(__name__)


async def _drop_foreign(_arrival_ms: float, _is_misplaced: bool) -> ForeignSubRecords:
    return ForeignSubRecords.DROP


class Deaggregator:
    """Expands the aggregates of one shard, in order. Sub-records whose hash key belongs to another shard are dropped or kept.

    `foreign_sub_records` makes this decision for each response with such sub-records, at most once for misplaced and once for other
    records. It receives the latest arrival of the response's records (epoch ms). After it has once answered that keys do not decide
    the shard (AUTO record distribution), every sub-record is kept without a check.
    """

    def __init__(
        self,
        shard: Shard,
        metrics: ShardMetrics,
        foreign_sub_records: Callable[[float, bool], Awaitable[ForeignSubRecords]] = _drop_foreign,
    ) -> None:
        self.shard = shard
        self.metrics = metrics
        self.yielder = LoopYielder()
        self._takes_all = shard.hash_range == HashRange()
        self._keys = OwnedKeys(shard.hash_range)
        self._foreign_sub_records = foreign_sub_records
        self._latest_arrival_ms = 0
        self._decisions: dict[bool, ForeignSubRecords] = {}
        self._dropped_log = SkippedRecordsLog(log)

    def batches(
        self, response: ReadResponse, read_position: SequenceNumber | None, start: StartingPosition
    ) -> ResponseBatches:
        """Return the batches of a response that was read from `start`, and count the response.

        `read_position` is the position after the response.
        """
        batches = ResponseBatches(self, response, read_position, start.skip_through)
        self.metrics.count_response(batches.raw_count, batches.raw_bytes, response.millis_behind_latest)
        return batches

    def begin_response(self, latest_arrival_ms: int) -> None:
        """Prepare to expand a response with aggregates. `latest_arrival_ms` is the latest arrival of its records, epoch ms."""
        self._latest_arrival_ms = latest_arrival_ms
        self._decisions.clear()

    async def open(
        self, aggregate: LongAggregate, record: UserRecord, done: SequenceNumber | None
    ) -> OpenAggregate | None:
        """Open a long aggregate behind the position `done`. Return None if the record is a plain one."""
        if not await aggregate.is_valid():
            return None
        is_misplaced = self.owned(aggregate.read(0, 1)) is not None
        first = done.sub_sequence + 1 if done is not None and done.sequence == record.sequence_number else 0
        return OpenAggregate(record, aggregate, is_misplaced, min(first, aggregate.length))

    async def read_step(self, opened: OpenAggregate) -> Iterable[Sequence[Any]]:
        """Return the columns of the user records among a long aggregate's next `STEP` sub-records. Yields to the event loop."""
        first, parts = opened.done, opened.aggregate.read(opened.done, opened.done + STEP)
        owned = self.owned(parts)
        if owned is not None:
            if opened.decision is None:
                opened.decision = await self.decide(opened.is_misplaced)
            owned = self.kept(owned, opened.decision, opened.record)
        opened.done += len(parts.data)
        await asyncio.sleep(0)
        return parts.columns(opened.record, first, owned)

    def owned(self, parts: SubRecords) -> list[bool] | None:
        """Return for each sub-record whether its hash key belongs to the shard, or None if every key does."""
        return None if self._takes_all else self._keys.owned(parts)

    async def decide(self, is_misplaced: bool) -> ForeignSubRecords:
        """Return what happens to foreign sub-records of one record of this response.

        `is_misplaced` says that the record's first sub-record is foreign: producers give its hash key to the whole record.
        """
        if is_misplaced not in self._decisions:
            self._decisions[is_misplaced] = await self._foreign_sub_records(self._latest_arrival_ms, is_misplaced)
        return self._decisions[is_misplaced]

    def kept(self, owned: list[bool], decision: ForeignSubRecords, record: UserRecord) -> list[bool] | None:
        """Return for each sub-record whether it is kept, or None to keep all.

        If keys decide the shard, foreign sub-records can be dropped, because the KPL sends them again, to their own shard.
        """
        if decision is ForeignSubRecords.DROP:
            self.metrics.add("foreign_sub_records", owned.count(False))
            self._dropped_log.skipped(
                f"{owned.count(False)} of {len(owned)} sub-records of the aggregate {record.sequence_number} of {self.shard.key}",
                _WHY_DROPPED,
                shard=self.shard.key,
            )
            return owned
        self._takes_all = decision is ForeignSubRecords.KEEP
        if decision is ForeignSubRecords.KEEP_UNCHECKED:
            self.metrics.add("unchecked_sub_records", owned.count(False))
        return None


class OpenAggregate:
    """A long aggregate that is being expanded. Owns how many of its sub-records are `done`, and the decision about foreign ones."""

    def __init__(self, record: UserRecord, aggregate: LongAggregate, is_misplaced: bool, done: int) -> None:
        self.record = record
        self.aggregate = aggregate
        self.is_misplaced = is_misplaced
        self.done = done
        self.decision: ForeignSubRecords | None = None

    @property
    def is_done(self) -> bool:
        """Whether every sub-record was read."""
        return self.done == self.aggregate.length

    @property
    def done_bytes(self) -> int:
        """The record's bytes in proportion to the sub-records that are done."""
        return len(self.record.data) * self.done // max(self.aggregate.length, 1)

    @property
    def position(self) -> SequenceNumber:
        """The position after the last sub-record that is done, while more sub-records are to come (P2)."""
        return SequenceNumber(self.record.sequence_number, self.done - 1)


class ResponseBatches:
    """The batches of one response, in order. Owns the part of the response that is not expanded yet.

    A response is one batch, unless its sub-records would take more memory than `MAX_BATCH_BYTES`. Then each further batch is made
    when the reader asks for it. Only the last batch may be at the tip, and only it carries the child shards.

    `done` is the sub-record up to which its record was done before (P2), or None outside an aggregate.
    """

    def __init__(
        self,
        deaggregator: Deaggregator,
        response: ReadResponse,
        read_position: SequenceNumber | None,
        done: SequenceNumber | None,
    ) -> None:
        raw = columns_of(response.records)
        has_aggregates = raw.has_aggregates
        if has_aggregates:
            deaggregator.begin_response(max(raw.arrival_millis))
        self._deaggregator = deaggregator
        self._plain = None if has_aggregates else raw
        # Records are taken from the end of this list, so that their memory is freed after expansion.
        self._reversed = list(reversed(raw.records)) if has_aggregates else []
        self._record: UserRecord  # the record that was taken last
        self._opened: OpenAggregate | None = None
        self._millis_behind_latest = response.millis_behind_latest
        self._last_arrival_ms = raw.arrival_millis[-1] if has_aggregates else 0
        self._child_shards = response.child_shards
        self._read_position = read_position
        self._done = done
        self._is_last_made = False
        self.raw_count = len(raw)
        self.raw_bytes = raw.payload_bytes
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
        self._deaggregator.metrics.add("number_of_deaggregated_records", len(batch))
        return batch

    async def _expand(self) -> RecordBatch:
        """Return the next batch of user records. It may end after a short aggregate, and after each step of a long one."""
        expanded = ExpandedRecords()
        while self._opened is not None or self._reversed:
            if self._opened is None:
                await self._take_records(expanded)
            else:
                await self._take_step(expanded, self._opened)
            if expanded.is_full and (self._opened is not None or self._reversed):
                return self._batch_so_far(expanded)
        return self._last_batch(expanded.records(), expanded.raw_count, expanded.raw_bytes)

    async def _take_records(self, expanded: ExpandedRecords) -> None:
        """Take plain records and short aggregates, up to a full batch or a long aggregate. A long aggregate is open afterwards.

        A short aggregate costs as few calls as possible. Sub-sequence numbers count dropped sub-records as well, so they are the same
        for every reader.
        """
        raw, done, deaggregator = self._reversed, self._done, self._deaggregator
        while raw and self._opened is None:
            self._record = record = raw.pop()
            expanded.raw_count += 1
            aggregate = parse_aggregate(record.data)
            if isinstance(aggregate, SubRecords):
                owned = deaggregator.owned(aggregate)
                if owned is not None:
                    owned = deaggregator.kept(owned, await deaggregator.decide(not owned[0]), record)
                if done is not None and record.sequence_number == done.sequence:
                    first = done.sub_sequence + 1
                    owned = [False] * first + (owned or [True] * len(aggregate.data))[first:]
                expanded.add(aggregate.columns(record, 0, owned), len(record.data))
                if deaggregator.yielder.is_due(len(aggregate.data), len(record.data)):
                    await asyncio.sleep(0)
            else:
                if aggregate is not None:
                    self._opened = await deaggregator.open(aggregate, record, done)
                if self._opened is None:
                    expanded.add_plain(record, done)
            # A full batch ends here. Were it to end at a long aggregate of which nothing is done, its position would be after the
            # aggregate.
            if expanded.held_bytes >= MAX_BATCH_BYTES and expanded.is_full:
                return

    async def _take_step(self, expanded: ExpandedRecords, opened: OpenAggregate) -> None:
        """Take the next step of sub-records of a long aggregate."""
        bytes_before = opened.done_bytes
        columns = await self._deaggregator.read_step(opened)
        expanded.add(columns, opened.done_bytes - bytes_before)
        if opened.is_done:
            self._opened = None

    def _batch_so_far(self, expanded: ExpandedRecords) -> RecordBatch:
        position = SequenceNumber(self._record.sequence_number) if self._opened is None else self._opened.position
        return RecordBatch(
            self._deaggregator.shard,
            expanded.records(),
            millis_behind_latest=behind_after(
                self._millis_behind_latest, self._last_arrival_ms, to_millis(self._record.arrival)
            ),
            read_position=position,
            raw_count=expanded.raw_count,
            raw_bytes=expanded.raw_bytes,
        )

    def _last_batch(self, records: Sequence[UserRecord], raw_count: int, raw_bytes: int) -> RecordBatch:
        self._is_last_made = True
        return RecordBatch(
            self._deaggregator.shard,
            records,
            self._millis_behind_latest,
            self._read_position,
            self._child_shards,
            raw_count=raw_count,
            raw_bytes=raw_bytes,
        )
