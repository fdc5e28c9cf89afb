"""Rows on their way into the spool: collected as Arrow columns, stored as one Arrow stream, handed over as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recordpublisher.plugins.spark.arrow_rows import ARROW_SCHEMA, ROWS_PER_BATCH, ArrowRows
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.records import RecordBatch

from .manifest import ShardRows


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """A file of rows, and what its manifest tells of it."""

    content: bytes
    count: int
    payload: int
    shards: Mapping[str, ShardRows]


class Waiting:
    """Owns the rows that wait for the next file."""

    def __init__(self) -> None:
        self._rows = ArrowRows()
        self._parents: dict[str, tuple[str, ...]] = {}
        self.count = 0
        self.payload = 0

    async def take(self, batch: RecordBatch, is_first: bool) -> None:
        """Take a batch; `is_first`: nothing of its shard was emitted before."""
        await self._rows.write(batch)
        if is_first and len(batch):
            self._parents[batch.shard.key] = tuple(f"{batch.stream}/{parent}" for parent in batch.shard.parents)
        self.count += len(batch)
        self.payload += sum(map(len, batch.data))

    def spooled(self) -> SpooledRows:
        """As a file."""
        shards = {
            key: ShardRows(count, self._rows.first[key], self._rows.last[key], self._parents.get(key, ()))
            for key, count in self._rows.counts.items()
        }
        return SpooledRows(_stream_of(self._rows.drain()), self.count, self.payload, shards)


def _stream_of(batches: Iterator[pa.RecordBatch]) -> bytes:
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, ARROW_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = target.getvalue().to_pybytes()
    return content


def read_rows(name: str, content: bytes, count: int) -> Any:
    """A file as an Arrow table. Raises: StateError when it has not as many rows as its manifest says."""
    table = pa.ipc.open_stream(pa.BufferReader(content)).read_all()
    if table.num_rows != count:
        raise StateError(f"the spool's {name} has {table.num_rows} rows, its manifest says {count}")
    return table


def in_batches(tables: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Tables in batches of a size that Spark takes well: small ones together, in order."""
    kept: list[Any] = []
    rows = 0
    for table in tables:
        kept.append(table)
        rows += table.num_rows
        if rows >= ROWS_PER_BATCH:
            yield from _together(kept)
            kept.clear()
            rows = 0
    if kept:
        yield from _together(kept)


def _together(tables: list[Any]) -> Iterator[pa.RecordBatch]:
    yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)
