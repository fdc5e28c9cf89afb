"""ArrowRows: the columns that Spark sees, built from whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.records import RecordBatch

from .column_buffers import INSTANT, binary_column, instant_column, number_column, repeated_column, text_column

ROWS_PER_BATCH = 20_000
"""Spark takes 10,000 to 50,000 rows at once at the least cost (measured)."""

ARROW_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("approximateArrivalTimestamp", INSTANT),
        ("eventTime", INSTANT),
        ("data", pa.binary()),
    ]
)
"""Spark compares the types of the first batch with its own schema, and accepts exactly these."""


def arrow_columns(*batches: RecordBatch, schema: pa.Schema = ARROW_SCHEMA) -> pa.RecordBatch:
    """Several batches as one Arrow batch with these columns: making columns costs the same for five records as for a thousand."""
    columns = {name: _BUILDERS[name](batches) for name in schema.names if name != "eventTime"}
    if "eventTime" in schema.names:
        is_arrival = all(batch.event_time_column is batch.arrival_millis for batch in batches)
        arrivals = columns.get("approximateArrivalTimestamp") if is_arrival else None
        columns["eventTime"] = instant_column(_column(batches, "event_time_column")) if arrivals is None else arrivals
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _column(batches: Sequence[RecordBatch], name: str) -> Sequence[Any]:
    parts = [getattr(batch, name) for batch in batches]
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))


def _repeated(batches: Sequence[RecordBatch], name: str) -> Any:
    return repeated_column((getattr(batch, name), len(batch)) for batch in batches)


_BUILDERS: dict[str, Callable[[Sequence[RecordBatch]], Any]] = {
    "stream": lambda batches: _repeated(batches, "stream"),
    "shardId": lambda batches: _repeated(batches, "shard_id"),
    "partitionKey": lambda batches: text_column(_column(batches, "partition_keys")),
    "explicitHashKey": lambda batches: text_column(_column(batches, "explicit_hash_keys")),
    "sequenceNumber": lambda batches: text_column(_column(batches, "sequence_numbers")),
    "subSequenceNumber": lambda batches: number_column(_column(batches, "sub_sequence_numbers")),
    "approximateArrivalTimestamp": lambda batches: instant_column(_column(batches, "arrival_millis")),
    "data": lambda batches: binary_column(_column(batches, "data")),
}


class ArrowRows(Sink):
    """A sink that collects rows as Arrow columns. For a claim it notes each shard's number of rows, and the first and last.

    Batches are kept until there are enough records for columns of a good size. `schema` has the columns that are handed over; no others are
    built, unless `keep_until` may be called (`may_drop`), which needs those that identify a row.
    """

    def __init__(self, schema: pa.Schema = ARROW_SCHEMA, *, may_drop: bool = False) -> None:
        self._schema = schema
        self._built_schema = ARROW_SCHEMA if may_drop else schema
        self._waiting: list[RecordBatch] = []
        self._waiting_rows = 0
        self._built: list[pa.RecordBatch] = []
        self.first: dict[str, tuple[str, int]] = {}
        self.last: dict[str, tuple[str, int]] = {}
        self.counts: dict[str, int] = {}

    async def write(self, batch: RecordBatch) -> None:
        """Collect a batch."""
        key = batch.shard.key
        if not batch.records:
            return
        self.first.setdefault(key, _row_id(batch, 0))
        self.last[key] = _row_id(batch, -1)
        self.counts[key] = self.counts.get(key, 0) + len(batch)
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        if self._waiting_rows >= ROWS_PER_BATCH:
            self._build()

    def __len__(self) -> int:
        built: int = sum(batch.num_rows for batch in self._built)
        return built + self._waiting_rows

    def keep_until(self, key: str, last: tuple[str, int] | None) -> int:
        """Keep a shard's rows up to `last`, or none when that row is missing. Returns how many are kept."""
        rows = self.table()
        shards = _pairs(rows, "stream", "shardId")
        ids = _pairs(rows, "sequenceNumber", "subSequenceNumber")
        positions = [place for place, (stream, shard) in enumerate(shards) if f"{stream}/{shard}" == key]
        left: int = next((number for number, place in enumerate(positions, 1) if ids[place] == last), 0)
        dropped = set(positions[left:])
        kept = [place for place in range(len(shards)) if place not in dropped]
        self._built = rows.take(pa.array(kept, pa.int64())).to_batches()
        return left

    def table(self) -> pa.Table:
        """All collected rows."""
        self._build()
        return pa.Table.from_batches(self._built, schema=self._built_schema)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of a good size. Each is released when it is handed over, so that nothing is in memory twice."""
        self._build()
        self._built.reverse()
        while self._built:
            batch = chosen_of(self._built.pop(), self._schema)
            yield from pa.Table.from_batches([batch]).to_batches(max_chunksize=ROWS_PER_BATCH)

    def _build(self) -> None:
        if self._waiting:
            self._built.append(arrow_columns(*self._waiting, schema=self._built_schema))
            self._waiting, self._waiting_rows = [], 0


def chosen_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, in its order."""
    if batch.schema == schema:
        return batch
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def _pairs(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _row_id(batch: RecordBatch, index: int) -> tuple[str, int]:
    record = batch.records[index]
    return record.sequence_number, record.sub_sequence_number
