"""Turns the responses of one shard into batches of user records (S4).

It expands KPL aggregates into their sub-records, and passes other records unchanged. `ResponseBatches` describes the steps for one
response.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from msgspec.structs import astuple

from ..clock import Clock
from ..errors import KinesisError, RetriesExhaustedError
from ..kinesis.ports import ReadResponse, RecordDistribution
from ..log_fields import log_extra
from ..positions import SequenceNumber, StartingPosition
from ..records import (
    COLUMNS,
    RECORD_OVERHEAD_BYTES,
    RecordBatch,
    RecordColumns,
    UserRecord,
    columns_of,
    millis_behind_at,
    to_millis,
)
from ..retry import RetryPolicy, call_with_retries
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard, hash_key_from
from ..skipped_records_log import SkippedRecordsLog
from .kpl_format import STEP, LongAggregate, SubRecords, parse_aggregate

try:  # CPython's own MD5 is five times as fast as OpenSSL's for short keys. OpenSSL's is faster for whole messages.
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_BATCH_BYTES = 4 * 2**20
"""The memory at which a batch is full (bytes). Further sub-records go into the next batch."""
STEP_BYTES = 2**20
"""How many bytes of aggregates are verified and parsed in one step. That takes about as long as expanding `STEP` sub-records."""
_WHY_DROPPED = (
    "their hash keys belong to other shards. The KPL puts such sub-records again after a reshard; another "
    "producer that aggregates must do so too, or put only keys of one shard into one record"
)


class Deaggregator:
    """Expands the aggregates of one shard, in order. Drops or keeps foreign sub-records: those whose hash key belongs to another shard.

    If an explicit hash key is not a number below 2^128, it is ignored. The hash key is then made from the partition key.

    - `foreign_sub_records`: returns what to do with foreign sub-records. It receives the latest arrival of the response's records (epoch
      ms), and whether the aggregate is itself in a wrong shard. After it has returned KEEP, sub-records are no longer checked. If it is
      None, foreign sub-records are dropped.
    """

    def __init__(
        self,
        shard: Shard,
        metrics: ShardMetrics,
        foreign_sub_records: Callable[[float, bool], Awaitable[ForeignSubRecords]] | None = None,
    ) -> None:
        self.shard = shard
        self.metrics = metrics
        self.foreign_sub_records = foreign_sub_records or _drop_foreign
        own = shard.hash_range
        self._takes_all = own == HashRange()
        self._own = own
        self._start, self._end = own.start.to_bytes(16, "big"), own.end.to_bytes(16, "big")
        self._steps = 0.0
        self._dropped_log = SkippedRecordsLog(log)

    def batches(
        self, response: ReadResponse, read_position: SequenceNumber | None, start: StartingPosition
    ) -> ResponseBatches:
        """Return the batches of a response that was read from `start`. The metrics count the response.

        - `read_position`: the position after the response.
        """
        batches = ResponseBatches(self, response, read_position, start.skip_through)
        self.metrics.count_response(batches.raw_count, batches.raw_bytes, response.millis_behind_latest)
        return batches

    def find_owned(self, parts: SubRecords) -> list[bool] | None:
        """Return for each sub-record whether its hash key belongs to the shard. Return None if all of them do."""
        if self._takes_all:
            return None
        # A few keys are shared by many sub-records, so each key of a table is hashed only once.
        by_key = _results_for_table(self._are_keys_owned, parts.partition_keys, parts.key_indexes)
        if parts.hash_key_indexes is None:
            if not isinstance(by_key, dict) and all(by_key):
                return None  # In the usual case every key belongs to the shard, and no index needs to be looked up.
            owned = [by_key[index] for index in parts.key_indexes]
        else:
            by_hash_key = _results_for_table(
                self._are_hash_keys_owned, parts.explicit_hash_keys, parts.hash_key_indexes
            )
            explicit = [None if at is None else by_hash_key[at] for at in parts.hash_key_indexes]
            owned = [
                by_key[index] if own_key is None else own_key
                for index, own_key in zip(parts.key_indexes, explicit, strict=True)
            ]
        return None if all(owned) else owned

    def choose_kept(self, owned: list[bool], decision: ForeignSubRecords, record: UserRecord) -> list[bool] | None:
        """Return for each sub-record whether it is kept, or None to keep all. Dropped sub-records are counted and logged.

        - `owned`: whether the hash key of each sub-record belongs to the shard.
        """
        if decision is ForeignSubRecords.DROP:
            # Dropping loses nothing, because the KPL sends these sub-records again, to their own shard.
            self.metrics.add("foreign_sub_records", owned.count(False))
            self._dropped_log.skipped(
                f"{owned.count(False)} of {len(owned)} sub-records of the aggregate {record.sequence_number} of {self.shard.key}",
                _WHY_DROPPED,
                shard=self.shard.key,
            )
            return owned
        # After AUTO was seen, sub-records are no longer checked, because the stream may still have records of that time.
        self._takes_all = decision is ForeignSubRecords.KEEP
        if decision is ForeignSubRecords.KEEP_UNCHECKED:
            self.metrics.add("unchecked_sub_records", owned.count(False))
        return None

    def is_due_to_yield(self, sub_records: int, size: int) -> bool:
        """Count work that was done. Return whether the caller must now await `asyncio.sleep(0)`, so that the event loop runs other tasks.

        The work is `sub_records` sub-records, which were expanded from `size` bytes of aggregates.
        """
        self._steps += sub_records / STEP + size / STEP_BYTES
        if self._steps < 1:
            return False
        self._steps = 0.0
        return True

    def _are_keys_owned(self, keys: Sequence[str]) -> list[bool]:
        start, end = self._start, self._end
        return [start <= md5(key.encode()).digest() <= end for key in keys]  # noqa: S324 - the service uses MD5

    def _are_hash_keys_owned(self, keys: Sequence[str]) -> list[bool | None]:
        return [None if key is None else key in self._own for key in map(hash_key_from, keys)]


async def _drop_foreign(_arrival_ms: float, _is_misplaced: bool) -> ForeignSubRecords:
    return ForeignSubRecords.DROP


def _results_for_table(
    work: Callable[[Sequence[str]], list[T]], table: Sequence[str], indexes: Sequence[int | None]
) -> list[T] | dict[int, T]:
    """Return the result of `work` for each key in `table`, by the key's index.

    If the table is long, only keys in `indexes` have a result.
    """
    if len(table) <= STEP:
        return work(table)
    # All keys of a long table would block the event loop too long, so `work` gets only the keys that `indexes` use.
    used = [index for index in set(indexes) if index is not None]
    return dict(zip(used, work([table[index] for index in used]), strict=True))


class ResponseBatches:
    """The batches of one response, in order. Each is made when the reader asks for it.

    A response is one batch, unless its sub-records would take more memory than `MAX_BATCH_BYTES`. Only the last batch may be at the tip,
    and only it has the child shards.

    The steps for a response with aggregates:

    1. `__init__` finds out whether there is an aggregate. If there is none, the records are the batch.
    2. `_take_records` takes records that are not aggregates and short aggregates, until the batch is full or a long aggregate follows.
    3. `_open` checks a long aggregate, and `_take_step` takes `STEP` of its sub-records at a time.
    4. The deaggregator finds foreign sub-records. They are dropped or kept, as decided for this response.
    5. `_batch_so_far` or `_last_batch` makes the batch.

    - `done`: position of the last sub-record that was already read, if the read starts inside an aggregate; else None.
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
        self._deaggregator = deaggregator
        self._plain = None if has_aggregates else raw
        # Records are taken from the end of this list, so that the memory of each is freed after it was expanded.
        self._reversed = list(reversed(raw.records)) if has_aggregates else []
        self._record: UserRecord  # The record that was taken last.
        self._opened: OpenAggregate | None = None
        # Arrivals are only needed if there are aggregates, because making this column costs 60 ns for each record.
        self._last_arrival_ms = raw.arrival_millis[-1] if has_aggregates else 0
        self._latest_arrival_ms = max(raw.arrival_millis) if has_aggregates else 0
        self._decisions: dict[bool, ForeignSubRecords] = {}
        self._millis_behind_latest = response.millis_behind_latest
        self._child_shards = response.child_shards
        self._read_position = read_position
        self._done = done
        self._is_last_made = False
        self.raw_count = len(raw)
        self.raw_bytes = raw.payload_bytes
        self.held_bytes = 0
        """Memory of the batches that were made so far (bytes)."""

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
        """Return the next batch. It ends when it is full, or at the end of the response.

        A full batch ends after a record, after a short aggregate, or after any step of a long aggregate.
        """
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
        """Take records that are not aggregates and short aggregates, until the batch is full or a long aggregate is open."""
        # This loop makes as few calls as possible, because most responses consist of short aggregates.
        raw, done, deaggregator = self._reversed, self._done, self._deaggregator
        while raw and self._opened is None:
            self._record = record = raw.pop()
            aggregate = parse_aggregate(record.data)
            if isinstance(aggregate, SubRecords):
                owned = deaggregator.find_owned(aggregate)
                if owned is not None:
                    owned = deaggregator.choose_kept(owned, await self._decide(not owned[0]), record)
                if done is not None and record.sequence_number == done.sequence:
                    first = done.sub_sequence + 1
                    owned = [False] * first + (owned or [True] * len(aggregate.data))[first:]
                # Dropped sub-records are numbered too, so that sub-sequence numbers are the same for every reader.
                expanded.add(aggregate.columns(record, 0, owned), len(record.data), raw_count=1)
                if deaggregator.is_due_to_yield(len(aggregate.data), len(record.data)):
                    await asyncio.sleep(0)
            else:
                if aggregate is not None:
                    self._opened = await self._open(aggregate, record)
                if self._opened is None:
                    expanded.add_plain(record, done)
                else:
                    expanded.count_long_aggregate()
            # A full batch must end before a long aggregate is opened. If it ended after that, with none of its sub-records read, the
            # batch's position would already be after the aggregate.
            if expanded.held_bytes >= MAX_BATCH_BYTES and expanded.is_full:
                return

    async def _open(self, aggregate: LongAggregate, record: UserRecord) -> OpenAggregate | None:
        """Open a long aggregate, and skip the sub-records that were already read. Return None if the record is not a valid aggregate."""
        if not await aggregate.is_valid():
            return None
        is_misplaced = self._deaggregator.find_owned(aggregate.read(0, 1)) is not None
        done = self._done
        first = done.sub_sequence + 1 if done is not None and done.sequence == record.sequence_number else 0
        return OpenAggregate(record, aggregate, is_misplaced, min(first, aggregate.length))

    async def _take_step(self, expanded: ExpandedRecords, opened: OpenAggregate) -> None:
        """Take the next `STEP` sub-records of a long aggregate, then let the event loop run other tasks."""
        bytes_before = opened.done_bytes
        first, parts = opened.read_step()
        owned = self._deaggregator.find_owned(parts)
        if owned is not None:
            owned = self._deaggregator.choose_kept(owned, await self._decide(opened.is_misplaced), opened.record)
        await asyncio.sleep(0)
        expanded.add(parts.columns(opened.record, first, owned), opened.done_bytes - bytes_before)
        if opened.is_done:
            self._opened = None

    async def _decide(self, is_misplaced: bool) -> ForeignSubRecords:
        """Return what to do with the foreign sub-records of one record of this response.

        - `is_misplaced`: whether the record is itself in a wrong shard. This is so if its first sub-record is foreign, because producers
          put an aggregate by the hash key of its first sub-record.
        """
        # The decision may need a call to the service, so it is made only once for each response.
        if is_misplaced not in self._decisions:
            self._decisions[is_misplaced] = await self._deaggregator.foreign_sub_records(
                self._latest_arrival_ms, is_misplaced
            )
        return self._decisions[is_misplaced]

    def _batch_so_far(self, expanded: ExpandedRecords) -> RecordBatch:
        position = SequenceNumber(self._record.sequence_number) if self._opened is None else self._opened.position
        return RecordBatch(
            self._deaggregator.shard,
            expanded.records(),
            millis_behind_latest=millis_behind_at(
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


class OpenAggregate:
    """A long aggregate that is being expanded. `done`: how many of its sub-records were read."""

    def __init__(self, record: UserRecord, aggregate: LongAggregate, is_misplaced: bool, done: int) -> None:
        self.record = record
        self.is_misplaced = is_misplaced
        self.done = done
        self._aggregate = aggregate

    def read_step(self) -> tuple[int, SubRecords]:
        """Return the sub-sequence number of the next sub-record, and the next `STEP` sub-records. They count as read."""
        first, parts = self.done, self._aggregate.read(self.done, self.done + STEP)
        self.done += len(parts.data)
        return first, parts

    @property
    def is_done(self) -> bool:
        """Whether every sub-record was read."""
        return self.done == self._aggregate.length

    @property
    def done_bytes(self) -> int:
        """Bytes of the record's data that count as read, in proportion to the number of sub-records that were read."""
        return len(self.record.data) * self.done // max(self._aggregate.length, 1)

    @property
    def position(self) -> SequenceNumber:
        """The position after the last sub-record that was read. Valid only while more sub-records follow."""
        return SequenceNumber(self.record.sequence_number, self.done - 1)


class ExpandedRecords:
    """The records of the next batch so far, as columns. A Kinesis record that spans two batches counts in the first of them."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._plain: list[UserRecord] = []  # The plain records since the last aggregate.
        self.held_bytes = 0
        """Memory of the records (bytes): data before de-aggregation, and a measured overhead for each record."""
        self.raw_count = 0

    def add(self, columns: Iterable[Iterable[Any]], raw_bytes: int, raw_count: int = 0) -> None:
        """Add sub-records, given as the columns `COLUMNS`.

        - `raw_bytes`: bytes of data before de-aggregation.
        - `raw_count`: number of Kinesis records that begin with these sub-records.
        """
        if self._plain:
            # The plain records came first, so they are moved into the columns first. `held_bytes` includes them already.
            data, numbers, arrivals, *others = zip(*map(astuple, self._plain), strict=True)
            held_bytes, self._plain = self.held_bytes, []
            self.add((data, numbers, map(to_millis, arrivals), *others), 0)
            self.held_bytes = held_bytes
        count = len(self._columns[0])
        for column, more in zip(self._columns, columns, strict=True):
            column.extend(more)
        self.raw_count += raw_count
        self.held_bytes += raw_bytes + RECORD_OVERHEAD_BYTES * (len(self._columns[0]) - count)

    def add_plain(self, record: UserRecord, done: SequenceNumber | None) -> None:
        """Add a record that is not an aggregate, unless it is the record at `done`, which was already read."""
        self.raw_count += 1
        self.held_bytes += len(record.data)
        if done is None or record.sequence_number != done.sequence:
            self.held_bytes += RECORD_OVERHEAD_BYTES
            self._plain.append(record)

    def count_long_aggregate(self) -> None:
        """Count a long aggregate. Its sub-records are added step by step."""
        self.raw_count += 1

    def records(self) -> RecordColumns:
        """Return the user records."""
        if not self._columns[0]:
            return RecordColumns(records=self._plain)
        self.add([()] * len(self._columns), 0)  # This moves the plain records to the end of the columns.
        return RecordColumns(**dict(zip(COLUMNS, self._columns, strict=True)))

    @property
    def raw_bytes(self) -> int:
        """Bytes of data before de-aggregation."""
        return self.held_bytes - RECORD_OVERHEAD_BYTES * (len(self._columns[0]) + len(self._plain))

    @property
    def is_full(self) -> bool:
        """Whether the batch takes as much memory as it may. A batch without records is never full."""
        return self.held_bytes >= MAX_BATCH_BYTES and bool(self._columns[0] or self._plain)


def records_after(records: Sequence[UserRecord], done: SequenceNumber | None) -> Sequence[UserRecord]:
    """Return the records without the record at `done`, which was already read. If `done` is None, return all records."""
    if done is None:
        return records
    return [record for record in records if record.sequence_number != done.sequence]


# --- does the key of a record decide its shard? ---------------------------------------------------------------------------------------

MIN_INTERVAL_SECONDS, PROVISIONED_INTERVAL_SECONDS = 10.0, 1.0
"""The shortest time between two requests for one stream (seconds): for a stream in on-demand mode, and in provisioned mode.

An account may make 20 calls of DescribeStreamSummary a second.
"""
FAILED_INTERVAL_SECONDS = 600.0
"""The shortest time from a failed request to the next request (seconds). In this time, a missing permission may be granted."""
ARRIVAL_TOLERANCE_MS = 60_000
"""How inaccurate an arrival time may be (ms). This is an assumption, because the service guarantees nothing."""


class ForeignSubRecords(Enum):
    """The ways to treat sub-records whose hash key belongs to another shard."""

    DROP = "keys decide the shard: the producer puts them again, into their own shard"
    KEEP = "keys do not decide the shard (AUTO record distribution)"
    KEEP_MISPLACED = "keys decide now, but did not when this record was put: its producer does not put it again"
    KEEP_UNCHECKED = "not known, the request failed: a duplicate is better than a lost record"


class RecordDistributionPort(Protocol):
    """Asks the service how a stream distributes its records."""

    async def record_distribution(self, stream: str) -> RecordDistribution:
        """Return how the stream (name or ARN) distributes its records now (DescribeStreamSummary)."""


class RecordDistributionCheck:
    """Finds out whether a stream puts records into shards by their keys, or distributes them freely (AUTO).

    - Once AUTO was seen, it counts for the rest of the run, because records of that time may still be read.
    - The answer "by key" is valid only for records that were put before the request, because the stream may be switched later. Before later
      records are handled, the request is sent again.
    - In on-demand mode at most one request is sent every 10 s. A provisioned stream is rarely switched, so one request every second is sent
      at most, and shards wait less.
    """

    def __init__(self, port: RecordDistributionPort, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        self._port = port
        self._stream = stream
        self._retries = retries
        self._clock = clock
        self._request_lock = asyncio.Lock()
        self._requested_at = self._failed_at = -math.inf
        self._by_key_until_ms = -math.inf
        self._is_auto = self._is_switchable = False
        self._has_warned = False

    async def foreign_sub_records(self, arrival_ms: float, is_misplaced: bool = False) -> ForeignSubRecords:
        """Return what to do with foreign sub-records of an aggregate that was just read and arrived at `arrival_ms`.

        - `is_misplaced`: whether the aggregate is itself in a wrong shard. If keys decide the shard, this cannot happen. Therefore, in an
          on-demand stream, the aggregate was put while the stream was set to AUTO, and its producer will not put the sub-records again.

        Raises: StreamNotFoundError if the stream does not exist.
        """
        await self._request_if_needed(arrival_ms)
        if self._is_auto:
            return ForeignSubRecords.KEEP
        if self._has_failed_lately():
            return ForeignSubRecords.KEEP_UNCHECKED
        return ForeignSubRecords.KEEP_MISPLACED if is_misplaced and self._is_switchable else ForeignSubRecords.DROP

    async def _request_if_needed(self, arrival_ms: float) -> None:
        """Ask the service, unless its last answer is valid for a record that was just read and arrived at `arrival_ms`."""
        read_at = self._clock.monotonic()
        if self._is_known_by_key(read_at, arrival_ms):
            return
        # The shards of a stream share one request, because its answer holds for all records that were read before the request.
        async with self._request_lock:
            if not self._is_auto and not self._has_failed_lately() and not self._is_known_by_key(read_at, arrival_ms):
                interval = MIN_INTERVAL_SECONDS if self._is_switchable else PROVISIONED_INTERVAL_SECONDS
                await asyncio.sleep(max(0.0, self._requested_at + interval - self._clock.monotonic()))
                await self._request()

    def _is_known_by_key(self, read_at: float, arrival_ms: float) -> bool:
        if self._is_auto or self._has_failed_lately():
            return False
        return self._requested_at >= read_at or arrival_ms + ARRIVAL_TOLERANCE_MS <= self._by_key_until_ms

    def _has_failed_lately(self) -> bool:
        return self._clock.monotonic() < self._failed_at + FAILED_INTERVAL_SECONDS

    async def _request(self) -> None:
        # The answer counts from the time of the request, because the distribution may change while the response is under way.
        requested_at = self._clock.monotonic()
        try:
            found = await call_with_retries(lambda: self._port.record_distribution(self._stream), self._retries)
        except (KinesisError, RetriesExhaustedError) as error:
            self._failed_at = self._clock.monotonic()
            self._warn_once(error)
            return
        self._requested_at, self._is_auto = requested_at, not found.by_key
        self._is_switchable = found.is_switchable
        if found.by_key and found.server_ms is not None:
            self._by_key_until_ms = found.server_ms

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "DescribeStreamSummary failed, so it is not known how %s distributes its records over its shards. Sub-records of KPL "
                "aggregates whose key belongs to another shard are kept, so some records may be read twice: %s",
                self._stream,
                error,
                extra=log_extra(self._stream),
            )


class RecordDistributionChecks:
    """Keeps one `RecordDistributionCheck` for each stream that a factory reads."""

    def __init__(self, retries: RetryPolicy, clock: Clock) -> None:
        self._retries = retries
        self._clock = clock
        self._checks: dict[str, RecordDistributionCheck] = {}

    def check_of(self, port: RecordDistributionPort, stream: str) -> RecordDistributionCheck:
        """Return the check for a stream (name or ARN). All shards of the stream share it."""
        if stream not in self._checks:
            self._checks[stream] = RecordDistributionCheck(port, stream, self._retries, self._clock)
        return self._checks[stream]
