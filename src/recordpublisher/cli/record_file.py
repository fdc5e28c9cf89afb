"""Writes printed records to a file or to standard output: as JSON lines, in a file of columns, or only their schema."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import msgspec

from recordpublisher.install_commands import install_command
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS
from recordpublisher.plugins.deserializers.schemas import (
    columns_text,
    merge_shapes,
    shape_of,
    with_types,
    with_valid_names,
    without_unknown_parts,
)
from recordpublisher.plugins.sinks.files.jsonl_sink import record_as_json
from recordpublisher.publishers.decoding_errors import UNDECODABLE
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.records import Record, RecordBatch, UserRecord
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.shards import Shard

from .execution import print_note
from .output import escape_controls_in_json

ROWS_TOGETHER, BYTES_TOGETHER = 20_000, 16 * 2**20
"""Most records, and most bytes of payloads, that wait to be written together as columns."""


@contextmanager
def record_file(kind: RecordFormat, path: Path | None, partitions: str | None = None) -> Iterator[RecordFile]:
    """Open the file, or standard output, while the block runs. An error before the first record leaves the file as it was.

    - `partitions`: the job's `flink.sink.partitions`. If a schema is written, it has the types that this value gives.

    Raises: ConfigurationError if the file cannot be written; ImportError if the extra `arrow` is missing.
    """
    if path is None and kind in (RecordFormat.ARROW, RecordFormat.PARQUET) and sys.stdout.isatty():
        reason = "a terminal cannot show this format"
        raise ConfigurationError(
            "--format", kind.value, "json or csv, or another format with --output FILE", reason=reason
        )
    is_new = path is not None and not path.exists()
    try:
        out: IO[bytes] = sys.stdout.buffer if path is None else path.open("ab")
    except OSError as error:
        raise ConfigurationError("--output", str(path), "a file that can be written", reason=str(error)) from error
    file = None
    try:
        with nullcontext(out) if path is None else out:
            is_replaced = path is not None and path.is_file()
            is_schema = kind is RecordFormat.SCHEMA
            file = SchemaFile(out, is_replaced, partitions) if is_schema else RecordFile(kind, out, is_replaced)
            try:
                yield file
            except BaseException:
                if file.has_begun:  # Records that were written can be read, even after an error.
                    file.close()
                raise
            file.close()
    finally:
        # A file that this command created without writing a record would look like an empty result.
        if path is not None and is_new and (file is None or not file.has_begun):
            path.unlink()


class RecordFile:
    """Writes records to a file or to standard output. Owns the records that wait to be written together, as formats with columns need."""

    def __init__(self, kind: RecordFormat, out: IO[bytes], is_replaced: bool = False) -> None:
        """Prepare a file. Nothing is written yet.

        - `is_replaced`: whether to remove the content of `out`, at the first record, or at the end if there is no record.

        Raises: ImportError if the format needs columns and the extra `arrow` is missing.
        """
        self._out, self._is_replaced = out, is_replaced
        self._column_writer = None if kind is RecordFormat.JSON else _column_writer(kind)
        self._is_text = kind is RecordFormat.CSV
        self._columns: Any = None
        self._waiting: list[Record] = []
        self._bytes = 0
        self.has_begun = False

    def _begin(self) -> None:
        if self.has_begun:
            return
        self.has_begun = True
        if self._is_replaced:
            self._out.seek(0)
            self._out.truncate()
        if self._column_writer is not None:
            self._columns = self._column_writer(self._out)

    def write(self, record: Record) -> None:
        """Write a record: now, or together with later records."""
        self._begin()
        if self._columns is None:
            self._out.write(json_line(record))
            return
        self._waiting.append(record)
        self._bytes += len(record.data)
        if len(self._waiting) >= ROWS_TOGETHER or self._bytes >= BYTES_TOGETHER:
            self._write_waiting()

    def flush(self) -> None:
        """Make the lines visible to readers of the file. Formats with columns keep records until there are enough to write."""
        if self._columns is None:
            self._out.flush()

    def close(self) -> None:
        """Write the records that still wait, and the end of the file."""
        self._begin()
        if self._columns is not None:
            self._write_waiting()
            self._columns.close()
        self._out.flush()

    def _write_waiting(self) -> None:
        from pyarrow import Table

        from recordpublisher.plugins.columns.record_columns import arrow_columns

        of_shards = groupby(self._waiting, key=lambda record: (record.stream, record.shard_id))
        batches = [_batch(Shard(*shard), list(records)) for shard, records in of_shards]
        self._waiting, self._bytes = [], 0
        if batches and self._columns is not None:
            columns = arrow_columns(*batches)
            self._columns.write(_with_text(Table.from_batches([columns])) if self._is_text else columns)


class SchemaFile(RecordFile):
    """Infers a schema from the fields of JSON objects. At the end, writes it in the form of `flink.deserializer.schema`.

    `pattern`: the job's `flink.sink.partitions`.
    """

    def __init__(self, out: IO[bytes], is_replaced: bool = False, pattern: str | None = None) -> None:
        super().__init__(RecordFormat.JSON, out, is_replaced)
        self._pattern = pattern
        self._seen: Any = {}
        self._others = 0

    def write(self, record: Record) -> None:
        """Add the fields of a record to the schema. Count a record that is not a JSON object."""
        try:
            value = msgspec.json.decode(record.data)
            self._seen = merge_shapes(self._seen, shape_of(value if isinstance(value, dict) else None))
        except (*UNDECODABLE, ValueError):  # A ValueError means that the object is nested too deeply.
            value = None
        self._others += not isinstance(value, dict)

    def close(self) -> None:
        """Write the schema."""
        self._begin()
        shape = without_unknown_parts(with_valid_names(self._seen, {})) or {}
        if shape and self._pattern is not None:
            from recordpublisher.plugins.columns.partitions import (
                Partitions,  # Imported here because it loads pyarrow, which other formats do not need.
            )

            of_metadata = {field.name for field in RECORD_FIELDS}
            kinds = Partitions(self._pattern).types_by_path().items()
            shape = with_types(shape, {path: kind for path, kind in kinds if path.split(".")[0] not in of_metadata})
        self._out.write(f"{columns_text(shape)}\n".encode() if shape else b"")
        self._out.flush()
        if self._others or not shape:
            left_out = f"{counted(self._others, 'record')} without a JSON object as payload"
            print_note(
                f"the schema leaves out {left_out}"
                if shape
                else f"no record has fields, so there is no schema ({left_out})"
            )


class RecordFormat(StrEnum):
    """The values of `--format`."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"
    SCHEMA = "schema"


def _column_writer(kind: RecordFormat) -> Callable[[IO[bytes]], Any]:
    try:
        from pyarrow import csv, ipc, parquet
    except ImportError as error:
        raise ImportError(f"--format {kind} needs the extra 'arrow': {install_command('arrow')}") from error
    from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA

    if kind is RecordFormat.CSV:
        return lambda out: csv.CSVWriter(out, _with_text(RECORD_SCHEMA.empty_table()).schema)
    writer: Any = {"arrow": ipc.new_file, "parquet": parquet.ParquetWriter}[kind]
    return lambda out: writer(out, RECORD_SCHEMA)


def _with_text(columns: Any) -> Any:
    """Return the columns with payloads as text, in which bytes that are not UTF-8 are escapes such as `\\xe9`."""
    import pyarrow

    place = columns.schema.get_field_index("data")
    texts = [payload.decode(errors="backslashreplace") for payload in columns.column("data").to_pylist()]
    return columns.set_column(place, "data", pyarrow.array(texts, pyarrow.string()))


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


def json_line(record: Record) -> bytes:
    """Return a record as one line of JSON. A payload that is a JSON object or array is embedded as it is, not as text."""
    fields: dict[str, Any] = record_as_json(record)
    if record.data.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(record.data)
            fields["data"] = msgspec.Raw(msgspec.json.format(record.data, indent=-1))
        except UNDECODABLE:
            pass  # The payload is not JSON after all, so it stays text.
    return escape_controls_in_json(msgspec.json.encode(fields)) + b"\n"
