"""Files of rows: record batches written as one Arrow stream, which a task hands to Spark unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.records import RecordBatch

from ..columns.arrow_rows import ARROW_SCHEMA, ROWS_PER_BATCH, ArrowRows
from ..outages import MAX_OUTAGE, OutageWatch
from ..python_worker import WorkerLoop
from .wal_identity import IDENTITY


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of `count` rows with `payload` bytes of data."""

    content: bytes
    count: int
    payload: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The name of a file in the store, and the number of its rows."""

    name: str
    rows: int


class PendingRows:
    """Owns the rows of the next file."""

    def __init__(self) -> None:
        self._rows = ArrowRows()
        self.count = 0
        self.payload = 0

    async def add(self, batch: RecordBatch) -> None:
        """Add a batch."""
        await self._rows.write(batch)
        self.count += len(batch)
        self.payload += sum(map(len, batch.data))

    def to_file(self) -> RowFile:
        """All rows as one file."""
        target = pa.BufferOutputStream()
        with pa.ipc.new_stream(target, ARROW_SCHEMA) as writer:
            for batch in self._rows.drain():
                writer.write_batch(batch)
        return RowFile(target.getvalue().to_pybytes(), self.count, self.payload)


def read_table(file: StoredFile, content: bytes) -> Any:
    """A file as an Arrow table. Raises: StateError when its number of rows is not that of its entry."""
    table = pa.ipc.open_stream(pa.BufferReader(content)).read_all()
    if table.num_rows != file.rows:
        raise StateError(f"{file.name} of the write-ahead log has {table.num_rows} rows, its entry says {file.rows}")
    return table


def rows_of(
    files: Sequence[StoredFile],
    store: WriteOnceStore,
    loop: WorkerLoop,
    location: str,
    watch: OutageWatch | None = None,
) -> Iterator[Any]:
    """In a task: the files' rows as Arrow batches, the same for every attempt, action and restart. Waits for a store that is away.

    Raises: ConfigurationError when the driver's log is not visible here, StateError, OutageError.
    """
    watch = watch or OutageWatch(MAX_OUTAGE.default)
    return _in_batches(watch.wait_out(partial(_fetched, file, store, loop, location)) for file in files)


def _fetched(file: StoredFile, store: WriteOnceStore, loop: WorkerLoop, location: str) -> Any:
    content = loop.run(store.get(file.name))
    if content is not None:
        return read_table(file, content)
    if loop.run(store.get(IDENTITY)) is None:
        raise ConfigurationError(
            "metadataLocation",
            location,
            "one location that the driver and every executor can read",
            reason="a task cannot see the driver's write-ahead log",
        )
    raise StateError(f"{file.name} of the write-ahead log is gone: is the batch an old one? Raise minBatchesToRetain")


def _in_batches(tables: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Tables as batches of a good size for Spark: small tables are joined, in order."""
    pending: list[Any] = []
    rows = 0
    for table in tables:
        pending.append(table)
        rows += table.num_rows
        if rows >= ROWS_PER_BATCH:
            yield from _combined(pending)
            pending.clear()
            rows = 0
    if pending:
        yield from _combined(pending)


def _combined(tables: list[Any]) -> Iterator[pa.RecordBatch]:
    yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)
