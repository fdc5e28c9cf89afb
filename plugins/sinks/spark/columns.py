"""The columns that Spark sees, built once from whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ....fetcher.sink import Sink
from ....publishers.records import RecordBatch
from .claim import RowId

SPARK_SCHEMA = (
    "stream STRING, shardId STRING, partitionKey STRING, explicitHashKey STRING, sequenceNumber STRING, subSequenceNumber LONG, "
    "approximateArrivalTimestamp TIMESTAMP, eventTime TIMESTAMP, data BINARY"
)
ROWS_PER_BATCH = 20_000
"""Handing over 10-50 thousand rows at once costs least (measured: reference, spark.md B.1)."""

_INSTANT = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("approximateArrivalTimestamp", _INSTANT),
        ("eventTime", _INSTANT),
        ("data", pa.binary()),
    ]
)
"""Spark compares the first batch with its own schema, type by type: exactly these (spark.md A.2)."""


def arrow_columns(batch: RecordBatch) -> pa.RecordBatch:
    """A batch of records as one of Arrow columns."""
    count = len(batch)
    columns = [
        pa.repeat(pa.scalar(batch.stream), count),
        pa.repeat(pa.scalar(batch.shard_id), count),
        pa.array(batch.partition_keys, pa.string()),
        pa.array(batch.explicit_hash_keys, pa.string()),
        pa.array(batch.sequence_numbers, pa.string()),
        pa.array(batch.sub_sequence_numbers, pa.int64()),
        _instants(batch.arrival_millis),
        _instants(batch.event_time_column),
        pa.array(batch.data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _instants(millis: Any) -> Any:
    # microseconds from milliseconds overflow only beyond the year 290,000: such an event time becomes null, not an error
    whole = pa.array(millis, pa.int64())
    fits = pc.and_(pc.less_equal(whole, 2**63 // 1000), pc.greater_equal(whole, -(2**63) // 1000 + 1))
    return pc.multiply(pc.if_else(fits, whole, None), 1000).cast(_INSTANT)


class ArrowRows(Sink):
    """Collects rows as Arrow columns, and per shard what a claim names: count, first and last row."""

    def __init__(self) -> None:
        self._batches: list[tuple[str, pa.RecordBatch]] = []
        self.first: dict[str, RowId] = {}
        self.last: dict[str, RowId] = {}
        self.counts: dict[str, int] = {}

    async def write(self, batch: RecordBatch) -> None:
        """Take a batch."""
        key = batch.shard.key
        if not batch.records:
            return
        self._batches.append((key, arrow_columns(batch)))
        self.first.setdefault(key, _row_id(batch, 0))
        self.last[key] = _row_id(batch, -1)
        self.counts[key] = self.counts.get(key, 0) + len(batch)

    def __len__(self) -> int:
        return sum(batch.num_rows for _, batch in self._batches)

    def cut_after(self, key: str, last: RowId | None) -> int:
        """Keep a shard's rows up to that one, none when it is not there; answers how many are left."""
        mine = [batch for shard, batch in self._batches if shard == key]
        self._batches = [(shard, batch) for shard, batch in self._batches if shard != key]
        rows = pa.Table.from_batches(mine, schema=ARROW_SCHEMA)
        ids = zip(rows["sequenceNumber"].to_pylist(), rows["subSequenceNumber"].to_pylist(), strict=True)
        left = next((place + 1 for place, row in enumerate(ids) if row == last), 0)
        self._batches += [(key, batch) for batch in rows.slice(0, left).to_batches()]
        return left

    def table(self) -> pa.Table:
        """Everything collected."""
        return pa.Table.from_batches([batch for _, batch in self._batches], schema=ARROW_SCHEMA)

    def hand_over(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches of a size that Spark takes well; what is handed over is let go, so that nothing is held twice."""
        while self._batches:
            taken, count = [], 0
            while self._batches and count < ROWS_PER_BATCH:
                taken.append(self._batches.pop(0)[1])
                count += taken[-1].num_rows
            together = pa.Table.from_batches(taken, schema=ARROW_SCHEMA).combine_chunks()
            taken.clear()
            yield from together.to_batches(max_chunksize=ROWS_PER_BATCH)


def _row_id(batch: RecordBatch, index: int) -> RowId:
    record = batch.records[index]
    return record.sequence_number, record.sub_sequence_number
