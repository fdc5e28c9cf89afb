"""Builds the columns that Spark sees from whole batches of records."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA, arrow_columns
from recordpublisher.publishers.records import RecordBatch

from .chosen_columns import with_own_names
from .reused_memory import ReusedMemory

ROWS_PER_BATCH = 20_000
"""Spark processes 10,000 to 50,000 rows at once at the lowest cost (measured)."""


class ArrowRows(Sink):
    """A sink that collects rows as Arrow columns. For a claim it counts each shard's rows and bytes, and keeps its first and last row.

    Bytes are counted before de-aggregation. Batches are kept until there are enough records for columns of a good size.

    - `schema`: the columns that Spark gets. No other columns are built, unless `may_drop`.
    - `may_drop`: whether `keep_until` may be called, which needs the columns that identify a row.
    - `memory`: memory of an earlier window. It is used again if its rows were taken.
    """

    def __init__(
        self, schema: pa.Schema = RECORD_SCHEMA, *, may_drop: bool = False, memory: ReusedMemory | None = None
    ) -> None:
        self._memory = memory or ReusedMemory()
        self._memory.begin_window()
        self._schema = schema
        self._built_schema = RECORD_SCHEMA if may_drop else with_own_names(schema)
        self._waiting: list[RecordBatch] = []
        self._waiting_rows = 0
        self._built: list[pa.RecordBatch] = []
        self.first: dict[str, tuple[str, int]] = {}
        self.last: dict[str, tuple[str, int]] = {}
        self.counts: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    async def write(self, batch: RecordBatch) -> None:
        """Collect a batch."""
        key = batch.shard.key
        if not batch.records:
            return
        self.first.setdefault(key, _row_id(batch, 0))
        self.last[key] = _row_id(batch, -1)
        self.counts[key] = self.counts.get(key, 0) + len(batch)
        self.bytes[key] = self.bytes.get(key, 0) + batch.raw_bytes
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        if self._waiting_rows >= ROWS_PER_BATCH:
            self._build()

    def __len__(self) -> int:
        built: int = sum(batch.num_rows for batch in self._built)
        return built + self._waiting_rows

    def keep_until(self, key: str, last: tuple[str, int] | None) -> int:
        """Keep a shard's rows up to `last`, or none if that row is missing. Return how many are kept."""
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
        """Return all collected rows."""
        self._build()
        return pa.Table.from_batches(self._built, schema=self._built_schema)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in batches of a good size. Each batch is released when it is returned, so that nothing is in memory twice."""
        self._build()
        self._built.reverse()
        while self._built:
            batch = chosen_of(self._built.pop(), self._schema)
            yield from pa.Table.from_batches([batch]).to_batches(max_chunksize=ROWS_PER_BATCH)

    def _build(self) -> None:
        if self._waiting:
            self._built.append(arrow_columns(*self._waiting, schema=self._built_schema, joined=self._memory.joined))
            self._waiting, self._waiting_rows = [], 0


def chosen_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`, in its order and spelling."""
    if batch.schema == schema:
        return batch
    columns = [batch.column(name) for name in with_own_names(schema).names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _pairs(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _row_id(batch: RecordBatch, index: int) -> tuple[str, int]:
    record = batch.records[index]
    return record.sequence_number, record.sub_sequence_number
