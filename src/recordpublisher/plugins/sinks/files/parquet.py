"""ParquetSink: one file for each shard and checkpoint, all with one schema. Needs the extra `parquet`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recordpublisher.extras import install_command

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError(f"the parquet sink needs the extra 'parquet': {install_command('parquet')}") from error

from recordpublisher.consumer.typed_values import plain_value
from recordpublisher.plugins.columns.column_buffers import text_column
from recordpublisher.plugins.columns.record_columns import arrow_columns
from recordpublisher.publishers.properties.groups.sinks import PARQUET_PATH
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from .sink import FileSink, Rejected

_INSTANT = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("shard_id", pa.string(), nullable=False),
        pa.field("sequence_number", pa.string(), nullable=False),
        pa.field("sub_sequence_number", pa.int64(), nullable=False),
        pa.field("partition_key", pa.string()),
        pa.field("explicit_hash_key", pa.string()),
        pa.field("approximate_arrival_timestamp", _INSTANT, nullable=False),
        pa.field("event_time", _INSTANT, nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("value", pa.string()),
    ]
)
"""The same for every file, so that they can be read as one table; `value` is the deserialised value as JSON text."""

_METADATA = pa.schema(
    [(re.sub("_(.)", lambda match: match[1].upper(), name), SCHEMA.field(name).type) for name in SCHEMA.names[:-1]]
)
"""The same without `value`, by the names that frames and Spark have for them."""
REPEATING = ["stream", "shard_id", "partition_key"]
"""Columns that are written with a dictionary: in the others nearly every value differs, and it would cost a quarter of the encoding."""


class ParquetSink(FileSink):
    """Writes the columns of `SCHEMA`: complete files only, with each record in exactly one; see `flink.sink.parquet.path`."""

    suffix = ".parquet"

    def __init__(self, properties: Mapping[str, object]) -> None:
        super().__init__(Properties(properties), PARQUET_PATH)

    def prepare(self, batch: RecordBatch) -> Any:
        """Arrow columns, which are smaller than the batch and cheap to make now; values become text later, in a thread."""
        return batch if batch.values is not None else _rows(batch, None)

    def file_writer(self, contents: Sequence[Any], rejected: Rejected) -> Callable[[Path], None] | None:
        """Writes the columns; rejects a value that JSON cannot represent."""
        rows: list[Any] = []
        for part in contents:
            rows += _with_values(part, rejected) if isinstance(part, RecordBatch) else [part]
        return partial(_write, rows) if rows else None


def _with_values(batch: RecordBatch, rejected: Rejected) -> list[Any]:
    return [_rows(part, values) for part, values in _writable(batch, rejected)]


def _writable(batch: RecordBatch, rejected: Rejected) -> list[tuple[RecordBatch, list[str]]]:
    """The batch with its values as JSON text. If a value has none, record by record without the rejected ones."""
    try:
        return [(batch, [json.dumps(value, default=plain_value) for value in batch.values or ()])]
    except (TypeError, ValueError, RecursionError) as error:
        if len(batch) == 1:
            rejected.append((batch, f"{type(error).__name__}: {error}"))
            return []
        singles = [batch.slice(index, index + 1) for index in range(len(batch))]
        return [part for single in singles for part in _writable(single, rejected)]


def _rows(batch: RecordBatch, values: list[str] | None) -> Any:
    columns = arrow_columns(batch, schema=_METADATA).columns
    texts = pa.nulls(len(batch), pa.string()) if values is None else text_column(values)
    return pa.record_batch([*columns, texts], schema=SCHEMA)


def _write(rows: list[Any], path: Path) -> None:
    pq.write_table(pa.Table.from_batches(rows, SCHEMA), path, use_dictionary=REPEATING)
