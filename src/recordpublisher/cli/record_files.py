"""How `tail` writes records: as JSON lines, or as columns in a file of Parquet, Arrow or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
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


class RecordFile:
    """Owns the records that wait to be written together as columns; lines are written at once."""

    def __init__(self, kind: RecordFormat, out: IO[bytes]) -> None:
        """Raises: ImportError without the extra `arrow`."""
        self._out = out
        self._columns = None if kind is RecordFormat.JSON else _column_writer(kind, out)
        self._waiting: list[Record] = []
        self._bytes = 0

    def write(self, record: Record) -> None:
        """Write a record, now or with later ones."""
        if self._columns is None:
            self._out.write(json_line(record))
            return
        self._waiting.append(record)
        self._bytes += len(record.data)
        if len(self._waiting) >= ROWS_TOGETHER or self._bytes >= BYTES_TOGETHER:
            self._write_waiting()

    def flush(self) -> None:
        """Let a reader see the lines; columns wait until there are enough of them."""
        if self._columns is None:
            self._out.flush()

    def close(self) -> None:
        """Write the rest, and what ends a file of columns."""
        if self._columns is not None:
            self._write_waiting()
            self._columns.close()
        self._out.flush()

    def _write_waiting(self) -> None:
        from recordpublisher.plugins.columns.record_columns import arrow_columns

        of_shards = groupby(self._waiting, key=lambda record: (record.stream, record.shard_id))
        batches = [_batch(Shard(*shard), list(records)) for shard, records in of_shards]
        self._waiting, self._bytes = [], 0
        if batches and self._columns is not None:
            self._columns.write(arrow_columns(*batches))


def _column_writer(kind: RecordFormat, out: IO[bytes]) -> Any:
    try:
        from pyarrow import csv, ipc, parquet
    except ImportError as error:
        raise ImportError(f"--format {kind} needs the extra 'arrow': {install_command('arrow')}") from error
    from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA

    return {"csv": csv.CSVWriter, "arrow": ipc.new_file, "parquet": parquet.ParquetWriter}[kind](out, RECORD_SCHEMA)


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


@contextmanager
def record_file(kind: RecordFormat, path: Path | None) -> Iterator[RecordFile]:
    """Opens the file, or standard output. Raises: ConfigurationError for a file that cannot be written."""
    try:
        out: IO[bytes] = sys.stdout.buffer if path is None else path.open("wb")
    except OSError as error:
        raise ConfigurationError("--output", str(path), "a file that can be written", reason=str(error)) from error
    with nullcontext(out) if path is None else out as opened, closing(RecordFile(kind, opened)) as file:
        yield file
