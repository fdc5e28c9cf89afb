"""The Arrow columns of a sink's files and tables: the fields of a type, or the payload, with the metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from msgspec import inspect

from recordpublisher.consumer.typed_values import fields_of, plain_value
from recordpublisher.publishers.errors import DeserializationError
from recordpublisher.publishers.records import RecordBatch

from .column_buffers import text_column
from .frame_columns import frame_columns

Rejected = list[tuple[RecordBatch, str]]
"""Records that cannot be written, each as a batch of one, with the reason."""
_VALUE = pa.field("value", pa.string())


class FileColumns:
    """The columns of frames: the fields of a type and the metadata; without a type that has fields the columns of Spark, with `data`.

    Then a last column `value` has deserialised values as JSON text; it is null where there are none.
    """

    def __init__(self, value_type: Any = None, check_rows: Callable[[pa.RecordBatch], None] | None = None) -> None:
        """`check_rows` raises ValueError for rows that the sink refuses. Raises: ConfigurationError for a field without an Arrow type."""
        self._check_rows = check_rows
        self._has_text = value_type is None or not fields_of(inspect.type_info(value_type))
        self._columns = frame_columns(None if self._has_text else value_type)
        self.schema = self._columns.schema.append(_VALUE) if self._has_text else self._columns.schema

    def rows(self, batches: Sequence[RecordBatch], rejected: Rejected) -> list[pa.RecordBatch]:
        """The records, as few Arrow batches; those whose value has no place in the columns are added to `rejected`."""
        try:
            return [self._together(batches)]
        except (TypeError, ValueError, OverflowError, RecursionError, DeserializationError) as error:
            if len(batches) > 1:
                return [rows for batch in batches for rows in self.rows([batch], rejected)]
            (batch,) = batches
            if len(batch) == 1:
                rejected.append((batch, str(error.__cause__ or f"{type(error).__name__}: {error}")))
                return []
            middle = len(batch) // 2
            halves = batch.slice(0, middle), batch.slice(middle, len(batch))
            return [rows for half in halves for rows in self.rows([half], rejected)]

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """As `FrameColumns.batch`."""
        rejected: Rejected = []
        rows = self.rows(batches, rejected)
        for record, reason in rejected:
            raise DeserializationError(record.stream, record.shard_id, record.sequence_numbers[0], reason)
        (together,) = rows
        return together

    def check(self, values: Sequence[Any]) -> None:
        """As `FrameColumns.check`, of values without a type. Raises: also TypeError, for one that has no form in JSON."""
        _json_texts(values)

    def _together(self, batches: Sequence[RecordBatch]) -> pa.RecordBatch:
        rows = self._columns.batch(*batches)
        if self._has_text:
            texts = pa.concat_arrays([_texts(batch) for batch in batches])
            rows = pa.RecordBatch.from_arrays([*rows.columns, texts], schema=self.schema)
        if self._check_rows is not None:
            self._check_rows(rows)
        return rows


def _texts(batch: RecordBatch) -> pa.Array:
    if batch.values is None:
        return pa.nulls(len(batch), pa.string())
    return text_column(_json_texts(batch.values))


def _json_texts(values: Sequence[Any]) -> list[str]:
    return [json.dumps(value, default=plain_value) for value in values]
