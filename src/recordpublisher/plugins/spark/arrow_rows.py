"""Collects records as Arrow batches of rows.

A window is one read of a task's shards within bounds. The next window uses the memory of the last one again.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.records import RecordBatch

from ..columns.record_columns import RECORD_SCHEMA, arrow_columns
from .python_worker import worker_loop
from .row_columns import RowColumns

ROWS_PER_BATCH = 20_000
"""Rows of one Arrow batch. Spark's cost per row is lowest with 10,000 to 50,000 rows (measured)."""
_IDS = pa.schema([RECORD_SCHEMA.field(name) for name in ("stream", "shardId", "sequenceNumber", "subSequenceNumber")])
"""The columns that identify a row."""


class ArrowRows(Sink):
    """A sink that collects rows as Arrow columns.

    For the claim of a task (the record of what it has read) it also keeps each shard's first and last row, its number of rows, and its
    bytes before de-aggregation. Records wait until there are enough of them for columns of a good size.

    - `columns`: the columns that Spark gets.
    - `may_drop`: whether `keep_until` may be called, which needs the columns that identify a row.
    - `memory`: the buffers of an earlier window. A buffer is used again if no column refers to it any longer.
    """

    def __init__(
        self, columns: RowColumns | None = None, *, may_drop: bool = False, memory: ReusedMemory | None = None
    ) -> None:
        self._memory = memory or ReusedMemory()
        self._memory.begin_window()
        self._columns = columns or RowColumns()
        self._ids: list[pa.RecordBatch] | None = [] if may_drop else None
        self._waiting: list[RecordBatch] = []
        self._waiting_rows = 0
        self._built: list[pa.RecordBatch] = []
        self.first: dict[str, tuple[str, int]] = {}
        self.last: dict[str, tuple[str, int]] = {}
        self.counts: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    async def write(self, batch: RecordBatch) -> None:
        """Collect a batch. Raises: DeserializationError if a value does not fit its column."""
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
            self.build()

    def __len__(self) -> int:
        built: int = sum(batch.num_rows for batch in self._built)
        return built + self._waiting_rows

    def keep_until(self, key: str, last: tuple[str, int] | None) -> int:
        """Drop a shard's rows after the row `last`. Return how many rows of the shard are kept.

        - `key`: the shard's `Shard.key`.
        - `last`: the sequence number and the sub-sequence number of a row. If it is None or not found, all rows of the shard are dropped.
        """
        rows = self.table()
        known = pa.Table.from_batches(self._ids or [], schema=_IDS)
        shards, ids = _pairs(known, *_IDS.names[:2]), _pairs(known, *_IDS.names[2:])
        positions = [place for place, (stream, shard) in enumerate(shards) if f"{stream}/{shard}" == key]
        left: int = next((number for number, place in enumerate(positions, 1) if ids[place] == last), 0)
        dropped = set(positions[left:])
        kept = pa.array([place for place in range(len(shards)) if place not in dropped], pa.int64())
        self._built, self._ids = rows.take(kept).to_batches(), known.take(kept).to_batches()
        return left

    def table(self) -> pa.Table:
        """Return all collected rows."""
        self.build()
        return pa.Table.from_batches(self._built, schema=self._columns.schema)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yield and release the rows, in batches of at most `ROWS_PER_BATCH` rows, so that no row is in memory twice."""
        self.build()
        self._built.reverse()
        while self._built:
            yield from pa.Table.from_batches([self._built.pop()]).to_batches(max_chunksize=ROWS_PER_BATCH)

    def build(self) -> None:
        """Turn the records collected since the last call into columns. Raises: DeserializationError if a value does not fit its column."""
        if self._waiting:
            self._built.append(self._columns.batch(self._waiting, self._memory.joined))
            if self._ids is not None:
                self._ids.append(arrow_columns(*self._waiting, schema=_IDS, joined=self._memory.joined))
            self._waiting, self._waiting_rows = [], 0


def _pairs(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _row_id(batch: RecordBatch, index: int) -> tuple[str, int]:
    record = batch.records[index]
    return record.sequence_number, record.sub_sequence_number


KEPT_IF_USED = 0.25
"""If a window fills at most this part of a buffer, the buffer is released, because the stream has become quiet."""


@dataclass(slots=True)
class _Buffer:
    content: io.BytesIO = field(default_factory=io.BytesIO)
    used: int = 0
    capacity: int = 0


class ReusedMemory:
    """Owns buffers for the payloads of a window. The next window uses them again. Buffers that a window has hardly used are released.

    Without them, the C library would return the memory of each window to the system. To get it back takes longer than to decode the base64
    of the payloads.
    """

    def __init__(self) -> None:
        self._buffers: list[_Buffer] = []

    @classmethod
    def of_process(cls) -> ReusedMemory:
        """Return the reused buffers of this Python process of Spark. Call it only in the thread that runs Spark's tasks."""
        return worker_loop().cached("memory of columns", cls)

    @classmethod
    def pair_of_process(cls) -> tuple[ReusedMemory, ReusedMemory]:
        """Return two sets of reused buffers of this Python process. One is filled while Spark handles the rows in the other one."""
        return cls.of_process(), worker_loop().cached("memory of every other window", cls)

    def begin_window(self) -> None:
        """Release the buffers that the last window has hardly used, and make the others free for the next window."""
        self._buffers = [each for each in self._buffers if each.used > KEPT_IF_USED * each.capacity]
        for each in self._buffers:
            each.used = 0

    def joined(self, parts: Iterable[Iterable[bytes]]) -> memoryview:
        """Return the values of all parts, joined in one buffer. The buffer is free again when nothing refers to the result."""
        buffer = self._free_buffer()
        for part in parts:
            buffer.content.writelines(part)
        buffer.used = buffer.content.tell()
        buffer.capacity = max(buffer.capacity, buffer.used)
        return buffer.content.getbuffer()[: buffer.used]

    def _free_buffer(self) -> _Buffer:
        for buffer in self._buffers:
            buffer.content.seek(0)
            try:
                buffer.content.write(b"")
            except BufferError:  # A column still uses this buffer.
                continue
            return buffer
        self._buffers.append(_Buffer())
        return self._buffers[-1]
