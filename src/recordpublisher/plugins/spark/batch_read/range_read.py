"""One task of a batch read. It reads its part of a shard window by window, and returns the rows of each window."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.pipeline.bounds import Bounds, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.records import RecordBatch

from ..columns.arrow_rows import ArrowRows
from ..columns.reused_memory import ReusedMemory
from ..options.spark_options import END_OPTION
from ..outages import OutageWatch
from ..source.task_plans import MAX_DOUBLINGS
from ..source.task_read import ReadShards
from .batch_plan import ShardRange

LOG = logging.getLogger("recordpublisher.spark")
PUBLISHER = "POLLING"
"""Tasks poll, because a subscription would be lost between two windows."""


class RowsBefore(ArrowRows):
    """Collects the rows of a part that are before its end.

    - `is_past`: True from the first row on that is not before the end.
    - `first_found`: the sequence number of the first record of the read.
    """

    def __init__(self, part: ShardRange, schema: pa.Schema = RECORD_SCHEMA, memory: ReusedMemory | None = None) -> None:
        super().__init__(schema, memory=memory)
        self._end = part.end
        self.is_past = False
        self.first_found: str | None = None

    async def write(self, batch: RecordBatch) -> None:
        """Collect the rows before the end."""
        if self.is_past or not batch.records:
            return
        rows = self._end.rows_before(batch)
        self.is_past = rows < len(batch)
        before = batch.slice(0, rows) if self.is_past else batch
        if self.first_found is None and before.records:
            self.first_found = before.records[0].sequence_number
        await super().write(before)


@dataclass(slots=True)
class RangeRead:
    """Owns how far the task has read. The task reads to the end of its part, to the end of the shard, or to the tip."""

    part: ShardRange
    read: ReadShards
    bounds: Bounds
    max_outage_ms: int
    accepts_loss: bool = False
    schema: pa.Schema = RECORD_SCHEMA
    memory: ReusedMemory = field(default_factory=ReusedMemory)
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state
    _outages: OutageWatch = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageWatch(self.max_outage_ms, self.clock)

    def rows(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches.

        Raises: ConfigurationError if the end is behind the tip; DataLossError if the start is past retention; OutageError if a service was
        away for too long. Errors that are not outages are raised at once.
        """
        shard, state, is_first, empty_windows = self.part.shard, ShardState(self.part.start), True, 0
        while True:
            rows = RowsBefore(self.part, self.schema, self.memory)
            outcome = self.read({shard: state}, self._window(empty_windows), rows, PUBLISHER).shards[shard.key]
            empty_windows = 0 if outcome.records else empty_windows + 1
            self._note_outage(outcome)
            if is_first and outcome.records:
                self._check_first(rows)
                is_first = False
            if outcome.seen.at_tip and not outcome.state.ended and not rows.is_past:
                self._check_end()
            yield from rows.drain()
            if rows.is_past or outcome.seen.at_tip or outcome.state.ended:
                return
            state = outcome.state

    def _window(self, empty_windows: int) -> Bounds:
        """Return the bounds of the next window. Its time doubles after each window that found nothing.

        All these windows begin at the last record, and empty responses may precede the next one.
        """
        usual = self.bounds.max_time
        return replace(self.bounds, max_time=usual and usual * (1 << min(MAX_DOUBLINGS, empty_windows)))

    def _check_end(self) -> None:
        """Refuse an end behind the tip of an open shard, because the next action would get more rows.

        An end given as a time has passed, so no more rows can arrive before it. Raises: ConfigurationError if the end is a record that does
        not exist yet.
        """
        end = self.part.end.sequence
        if end is not None:
            reason = f"{self.part.shard.key} has no record at or behind it yet"
            raise ConfigurationError(
                END_OPTION, str(end), "the sequence number of a record that is there, a time, or NOW", reason=reason
            )

    def _note_outage(self, outcome: ShardOutcome) -> None:
        if outcome.seen.failure is not None and not outcome.records:
            self._outages.on_failure(outcome.seen.failure)
        else:
            self._outages.on_success()

    def _check_first(self, rows: RowsBefore) -> None:
        """Check that the read found the record at which it starts.

        If that record is past retention, the service starts at the oldest record. Raises: DataLossError in that case, unless the job
        accepts it.
        """
        asked, shard = self.part.start.sequence_number, self.part.shard
        found = rows.first_found
        if asked is None or found == asked or (found is None and rows.is_past):
            return
        lost = f"{shard.key} does not have the record {asked}, at which the read starts; is it past the stream's retention?"
        if not self.accepts_loss:
            raise DataLossError(f"{lost} Set flink.state.dataloss=CONTINUE to start at the oldest record")
        LOG.warning("%s Going on because flink.state.dataloss=CONTINUE", lost)
