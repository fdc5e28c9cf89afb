"""The Arrow columns of a sink's files and tables: the fields of a type, or the payload, with the metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from msgspec import inspect

from recordpublisher.consumer.typed_values import fields_of, plain_value
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
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
        """`check_rows` raises ValueError for rows that the sink refuses.

        Raises: ConfigurationError for a field without an Arrow type, or with a name that readers of tables do not take.
        """
        self._check_rows = check_rows
        fields = None if value_type is None else fields_of(inspect.type_info(value_type))
        for field in fields or ():
            _check_name(field.name)
        self._has_text = not fields
        self._columns = frame_columns(None if self._has_text else value_type)
        self.metadata = self._columns.metadata
        _check_names(self._columns.schema)
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


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Check the names of columns, and of the fields of objects in them. Raises: ConfigurationError."""
    by_lower: dict[str, str] = {}
    for field in fields:
        _check_name(field.name, by_lower.setdefault(field.name.lower(), field.name))
        _check_names(_fields_within(field.type))


def _check_name(name: str, twin: str | None = None) -> None:
    reason = "its name is empty" if not name else "its name has a NUL" if "\0" in name else ""
    if any("\ud800" <= character <= "\udfff" for character in name):
        reason = "its name has half a surrogate pair"
    if twin not in (None, name):
        reason = (
            f"its name differs from that of column {twin!r} in case only, which Delta Lake, Spark and DuckDB ignore"
        )
    if reason:
        valid = "a type whose fields have other names"
        raise ConfigurationError("deserializer", name, valid, reason=f"the field {name!r} cannot be a column: {reason}")


def _fields_within(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    parts = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
    parts += [kind.value_type] if pa.types.is_list(kind) else []
    return [field for part in parts for field in _fields_within(part)]


def _texts(batch: RecordBatch) -> pa.Array:
    if batch.decoded is None:
        return pa.nulls(len(batch), pa.string())
    return text_column(_json_texts(batch.decoded))


def _json_texts(values: Sequence[Any]) -> list[str]:
    return [json.dumps(value, default=plain_value, allow_nan=False) for value in values]
