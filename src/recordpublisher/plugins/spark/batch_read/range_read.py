"""RangeRead: a task of a batch read. It reads its part of a shard window by window, and returns the rows of each as it goes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.pipeline.bounds import Bounds, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.records import RecordBatch

from ..arrow_rows import ARROW_SCHEMA, ArrowRows
from ..outages import OutageWatch
from ..source.read_task import ReadShards
from .batch_plan import ShardRange
from .positions import EndPosition

LOG = logging.getLogger("recordpublisher.spark")
PUBLISHER = "POLLING"
"""A subscription would be lost between two windows."""


class RowsBefore(ArrowRows):
    """Collects the rows that lie before an end; `is_past` from the first other one on."""

    def __init__(self, end: EndPosition, schema: pa.Schema = ARROW_SCHEMA) -> None:
        super().__init__(schema)
        self._end = end
        self.is_past = False

    async def write(self, batch: RecordBatch) -> None:
        """Collect what lies before the end."""
        if self.is_past:
            return
        rows = self._end.rows_before(batch)
        self.is_past = rows < len(batch)
        await super().write(first_rows(batch, rows) if self.is_past else batch)


@dataclass(slots=True)
class RangeRead:
    """Owns how far the task has read. It reads to the end of its part or of the shard, or to the tip."""

    part: ShardRange
    read: ReadShards
    bounds: Bounds
    max_outage_ms: int
    accepts_loss: bool = False
    schema: pa.Schema = ARROW_SCHEMA
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state
    _outages: OutageWatch = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageWatch(self.max_outage_ms, self.clock)

    def rows(self) -> Iterator[Any]:
        """The rows as Arrow batches. Raises: DataLossError, OutageError; every error that is no outage, at once."""
        shard, state, is_first = self.part.shard, ShardState(self.part.start), True
        while True:
            rows = RowsBefore(self.part.end, self.schema)
            outcome = self.read({shard: state}, self.bounds, rows, PUBLISHER).shards[shard.key]
            self._note_outage(outcome)
            if is_first and outcome.records:
                self._check_first(rows)
                is_first = False
            yield from rows.drain()
            if rows.is_past or outcome.at_tip or outcome.state.ended:
                return
            state = outcome.state

    def _note_outage(self, outcome: ShardOutcome) -> None:
        if outcome.failure is not None and not outcome.records:
            self._outages.on_failure(outcome.failure)
        else:
            self._outages.on_success()

    def _check_first(self, rows: RowsBefore) -> None:
        """The service starts at the oldest record if the one that was asked for is past retention."""
        asked, shard = self.part.start.sequence_number, self.part.shard
        found = rows.first.get(shard.key)
        if asked is None or (found is not None and found[0] == asked) or (found is None and rows.is_past):
            return
        lost = f"{shard.key} does not have the record {asked}, at which the read starts; is it past the stream's retention?"
        if not self.accepts_loss:
            raise DataLossError(f"{lost} Set flink.state.dataloss=CONTINUE to start at the oldest record")
        LOG.warning("%s Going on because flink.state.dataloss=CONTINUE", lost)


def first_rows(batch: RecordBatch, rows: int) -> RecordBatch:
    """The first rows of a batch."""
    return replace(
        batch,
        records=batch.records[:rows],
        values=None if batch.values is None else batch.values[:rows],
        event_times=None if batch.event_times is None else batch.event_times[:rows],
        watermarks=None if batch.watermarks is None else batch.watermarks[:rows],
    )
