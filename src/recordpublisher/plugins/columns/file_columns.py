"""The Arrow columns that a sink writes into files and tables: the fields of a type, or the payload, with the metadata."""

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
    """The columns of a sink's files: the fields of a type, then the metadata.

    Without a type that has fields, they are the columns of Spark with the payload in `data`, and a last column `value`, which has
    the deserialised value as JSON text. `value` is null if the records were not deserialised.
    """

    def __init__(self, value_type: Any = None, check_rows: Callable[[pa.RecordBatch], None] | None = None) -> None:
        """Choose the columns of `value_type`. `check_rows` raises ValueError for rows that the sink refuses.

        Raises: ConfigurationError if a field has no Arrow type, or a name that readers of tables do not accept.
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
        """Return the records as few Arrow batches, and add each record that does not fit the columns to `rejected`.

        A batch that does not fit is halved until each bad record is alone.
        """
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
        """Return several batches as one. Raises: DeserializationError if a record does not fit the columns; it names the record."""
        rejected: Rejected = []
        rows = self.rows(batches, rejected)
        for record, reason in rejected:
            raise DeserializationError(record.stream, record.shard_id, record.sequence_numbers[0], reason)
        (together,) = rows
        return together

    def check(self, values: Sequence[Any]) -> None:
        """Check that each value can be written as JSON. Raises: ValueError or TypeError if one has no form in JSON."""
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
    """Check the names of columns, and of the fields of objects in them.

    Raises: ConfigurationError if a name is empty, has a NUL or half a surrogate pair, or differs from another one in case only.
    """
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
