"""How `tail` writes records: as JSON lines, or as columns in a file of Parquet, Arrow or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.records import Record, RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from .printed_records import json_line

ROWS_TOGETHER, BYTES_TOGETHER = 20_000, 16 * 2**20
"""Records that wait to be written as columns."""


class RecordFormat(StrEnum):
    """The values of `--format`."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


class JsonLines:
    """Writes each record at once."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def write(self, record: Record) -> None:
        """Write one line."""
        self._out.write(json_line(record))

    def flush(self) -> None:
        """Let a reader see what was written."""
        self._out.flush()

    def close(self) -> None:
        """Nothing waits."""


class ColumnFile:
    """Owns the records that wait to be written together, in the columns of Spark."""

    def __init__(self, kind: RecordFormat, out: IO[bytes]) -> None:
        """Raises: ImportError without the extra `arrow`."""
        try:
            import pyarrow as pa
            from pyarrow import csv, parquet
        except ImportError as error:
            raise ImportError(f"--format {kind} needs the extra 'arrow': {install_command('arrow')}") from error
        from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA, arrow_columns

        writers = {"csv": csv.CSVWriter, "arrow": pa.ipc.new_file, "parquet": parquet.ParquetWriter}
        self._writer: Any = writers[kind](out, RECORD_SCHEMA)
        self._to_arrow = arrow_columns
        self._waiting: list[Record] = []
        self._bytes = 0

    def write(self, record: Record) -> None:
        """Write a record, with those that wait if there are enough."""
        self._waiting.append(record)
        self._bytes += len(record.data)
        if len(self._waiting) >= ROWS_TOGETHER or self._bytes >= BYTES_TOGETHER:
            self._write_waiting()

    def flush(self) -> None:
        """Records wait until there are enough."""

    def close(self) -> None:
        """Write the rest, and what ends the file."""
        self._write_waiting()
        self._writer.close()

    def _write_waiting(self) -> None:
        of_shards = groupby(self._waiting, key=lambda record: (record.stream, record.shard_id))
        batches = [_batch(Shard(*shard), list(records)) for shard, records in of_shards]
        self._waiting, self._bytes = [], 0
        if batches:
            self._writer.write(self._to_arrow(*batches))


def _batch(shard: Shard, records: list[Record]) -> RecordBatch:
    users = [
        UserRecord(
            record.data,
            record.sequence_number,
            record.arrival_millis / 1000,
            record.partition_key,
            record.explicit_hash_key,
            record.sub_sequence_number,
        )
        for record in records
    ]
    return RecordBatch(shard, users, event_times=[record.event_time for record in records])


RecordFile = JsonLines | ColumnFile


@contextmanager
def record_file(kind: RecordFormat, path: Path | None) -> Iterator[RecordFile]:
    """Opens the file, or standard output. Raises: ConfigurationError for a file that cannot be written."""
    if path is None:
        out: IO[bytes] = sys.stdout.buffer
    else:
        try:
            out = path.open("wb")
        except OSError as error:
            raise ConfigurationError("--output", str(path), "a file that can be written", reason=str(error)) from error
    file = JsonLines(out) if kind is RecordFormat.JSON else ColumnFile(kind, out)
    try:
        yield file
    finally:
        file.close()
        out.flush() if path is None else out.close()
