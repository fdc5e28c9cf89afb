"""One task of a batch read. It reads its parts of shards window by window, and returns the rows of each window."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, DataLossError, StreamNotFoundError
from recordpublisher.publishers.records import RecordBatch

from ..columns.arrow_rows import ArrowRows
from ..columns.reused_memory import ReusedMemory
from ..options.spark_options import END_OPTION
from ..outages import OutageWatch
from ..source.task_plans import MAX_DOUBLINGS
from .background_read import BeginRead
from .batch_plan import ShardRange
from .read_range import EndPosition

LOG = logging.getLogger("recordpublisher.spark")


class RowsBefore(ArrowRows):
    """Collects the rows of each shard that are before the shard's end.

    - `past`: the shards (`Shard.key`) with a record at or behind their end. The run uses it as limits of its shards, so it reads no more of
      a shard that was added.
    - `first_found`: the sequence number of the first record of each shard.
    """

    def __init__(
        self,
        ends: Mapping[str, EndPosition],
        schema: pa.Schema = RECORD_SCHEMA,
        memory: ReusedMemory | None = None,
    ) -> None:
        super().__init__(schema, memory=memory)
        self._ends = ends
        self.past: dict[str, int] = {}
        self.first_found: dict[str, str] = {}

    async def write(self, batch: RecordBatch) -> None:
        """Collect the records before the end of the batch's shard."""
        key = batch.shard.key
        if key in self.past or not batch.records:
            return
        rows = self._ends[key].rows_before(batch)
        if rows < len(batch):
            self.past[key] = 0
            batch = batch.slice(0, rows)
        if batch.records:
            self.first_found.setdefault(key, batch.records[0].sequence_number)
        await super().write(batch)


@dataclass(slots=True)
class _Progress:
    """How far a part was read.

    - `empty_windows`: number of windows in a row that found no record of the shard.
    - `is_first`: whether no window has found a record so far.
    """

    part: ShardRange
    state: ShardState
    empty_windows: int = 0
    is_first: bool = True


@dataclass(slots=True)
class RangeRead:
    """Owns how far the task has read. The task reads each part to its end, to the end of the shard, or to the tip.

    Spark handles the rows of a window while the next window is read. Each of the two windows holds at most half of `bounds` and the rest of
    one response, regardless of the number of shards. The rows of one shard keep their order; rows of several shards mix.
    """

    parts: Sequence[ShardRange]
    begin: BeginRead
    bounds: Bounds
    max_outage_ms: int
    accepts_loss: bool = False
    schema: pa.Schema = RECORD_SCHEMA
    memories: Sequence[ReusedMemory] = field(default_factory=lambda: (ReusedMemory(), ReusedMemory()))
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state
    _outages: OutageWatch = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageWatch(self.max_outage_ms, self.clock)

    def rows(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches.

        Raises: ConfigurationError if the end is behind the tip; DataLossError if the start is past retention; StreamNotFoundError if the
        stream was deleted; OutageError if a service was away for too long. Errors that are not outages are raised at once.
        """
        left = [_Progress(part, ShardState(part.start)) for part in self.parts]
        memories = cycle(self.memories)
        window = self._begin(left, next(memories))
        try:
            while left:
                left = self._left_after(left, *window)
                rows = window[0]
                if left:
                    window = self._begin(left, next(memories))
                yield from rows.drain()
        finally:
            window[1].cancel()

    def _begin(self, left: Sequence[_Progress], memory: ReusedMemory) -> tuple[RowsBefore, Future[BoundedResult]]:
        rows = RowsBefore({each.part.shard.key: each.part.end for each in left}, self.schema, memory)
        return rows, self.begin({each.part.shard: each.state for each in left}, self._window(left, rows), rows)

    def _window(self, left: Sequence[_Progress], rows: RowsBefore) -> Bounds:
        """Return the bounds of the next window. Its time doubles after each window that found nothing.

        All these windows begin at the last record, and empty responses may precede the next one.
        """
        usual, doublings = self.bounds.max_time, min(MAX_DOUBLINGS, max(each.empty_windows for each in left))
        return replace(
            self.bounds,
            max_time=usual and usual * (1 << doublings),
            max_records=_half(self.bounds.max_records),
            max_bytes=_half(self.bounds.max_bytes),
            shard_limits=rows.past,
        )

    def _left_after(
        self, left: Sequence[_Progress], rows: RowsBefore, reading: Future[BoundedResult]
    ) -> list[_Progress]:
        """Wait for the end of a window, and return the parts that were not read to their ends."""
        outcomes = reading.result().shards
        return [each for each in left if not self._is_done(each, rows, outcomes)]

    def _is_done(self, each: _Progress, rows: RowsBefore, outcomes: Mapping[str, ShardOutcome]) -> bool:
        shard = each.part.shard
        outcome, is_past = outcomes.get(shard.key), shard.key in rows.past
        if outcome is None:
            raise StreamNotFoundError(shard.stream)
        each.empty_windows = 0 if outcome.records else each.empty_windows + 1
        self._note_outage(outcome)
        if each.is_first and outcome.records:
            self._check_first(each.part, rows)
            each.is_first = False
        if outcome.seen.at_tip and not outcome.state.ended and not is_past:
            self._check_end(each.part)
        each.state = outcome.state
        return is_past or outcome.seen.at_tip or outcome.state.ended

    def _check_end(self, part: ShardRange) -> None:
        """Refuse an end behind the tip of an open shard, because the next action would get more rows.

        An end given as a time has passed, so no more rows can arrive before it. Raises: ConfigurationError if the end is a record that does
        not exist yet.
        """
        end = part.end.sequence
        if end is not None:
            reason = f"{part.shard.key} has no record at or behind it yet"
            raise ConfigurationError(
                END_OPTION, str(end), "the sequence number of a record that is there, a time, or NOW", reason=reason
            )

    def _note_outage(self, outcome: ShardOutcome) -> None:
        key = outcome.shard.key
        if outcome.seen.failure is not None and not outcome.records:
            self._outages.on_failure(outcome.seen.failure, key)
        else:
            self._outages.on_success(key)

    def _check_first(self, part: ShardRange, rows: RowsBefore) -> None:
        """Check that the read found the record at which it starts.

        If that record is past retention, the service starts at the oldest record. Raises: DataLossError in that case, unless the job
        accepts it.
        """
        asked, key = part.start.sequence_number, part.shard.key
        found = rows.first_found.get(key)
        if asked is None or found == asked or (found is None and key in rows.past):
            return
        lost = f"{key} does not have the record {asked}, at which the read starts; is it past the stream's retention?"
        if not self.accepts_loss:
            raise DataLossError(f"{lost} Set flink.state.dataloss=CONTINUE to start at the oldest record")
        LOG.warning("%s Going on because flink.state.dataloss=CONTINUE", lost)


def _half(limit: int | None) -> int | None:
    return None if limit is None else max(1, limit // 2)
