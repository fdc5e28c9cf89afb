"""The Arrow columns that a sink writes into files and tables: the fields of a declared or an inferred type, then the metadata."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from recordpublisher.consumer.typed_values import Json, fields_of, plain_value, type_info
from recordpublisher.fetcher.sink import RejectedRecord
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import text_of
from recordpublisher.publishers.user_code import describe_error

from ..deserializers.schemas import (
    Shape,
    columns_text,
    merge_shapes,
    paths_without_column,
    row_type,
    shape_of,
    with_missing_fields,
    with_types,
    with_valid_names,
)
from .record_columns import RECORD_SCHEMA, arrow_columns, text_column
from .record_fields import DATA
from .typed_columns import NullFields, frame_columns

_VALUE = pa.field("value", pa.string())
_METADATA = pa.schema([field for field in RECORD_SCHEMA if field.name != DATA])
_NAMES = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.large_string(): "STRING",
    pa.string_view(): "STRING", pa.binary(): "BINARY", pa.large_binary(): "BINARY", pa.binary_view(): "BINARY",
    pa.date32(): "DATE", pa.time64("us"): "TIME",
}  # fmt: skip

log = logging.getLogger("recordpublisher.columns")
"""`recordpublisher run` shows the INFO lines of this logger. Each tells of a change of a table that others may read."""


class FileColumns:
    """The columns of a sink's files: the fields of a type, then the metadata.

    Without a type that has fields, they are the columns of the Spark source (payload and metadata), and a last column `value` with the
    deserialized value as JSON text. `value` is null if the records were not deserialized.
    """

    def __init__(self, value_type: Any = None, check_rows: Callable[[pa.RecordBatch], None] | None = None) -> None:
        """Choose the columns of `value_type`. `check_rows` raises ValueError for rows that the sink refuses.

        Raises: ConfigurationError if a field has no Arrow type, or a name that readers of tables do not accept.
        """
        self._check_rows = check_rows
        fields = None if value_type is None else fields_of(type_info(value_type))
        for field in fields or ():
            _check_name(field.name)
        self._has_text = not fields
        self._columns = frame_columns(None if self._has_text else value_type)
        self.metadata = self._columns.metadata
        self._null_fields = NullFields(field.name for field in fields or ())
        check_names(self._columns.schema)
        self.schema = self._columns.schema.append(_VALUE) if self._has_text else self._columns.schema

    def rows(self, batches: Sequence[RecordBatch], rejected: list[RejectedRecord]) -> list[pa.RecordBatch]:
        """Return the records that fit the columns as Arrow batches. Add each other record to `rejected`, with the reason.

        If all records fit, there is one Arrow batch.
        """
        try:
            return [self._together(batches)]
        except (TypeError, ValueError, OverflowError, RecursionError, DeserializationError) as error:
            if len(batches) > 1:
                return [rows for batch in batches for rows in self.rows([batch], rejected)]
            (batch,) = batches
            if len(batch) == 1:
                rejected.append((batch, text_of(error.__cause__) if error.__cause__ else describe_error(error)))
                return []
            middle = len(batch) // 2
            halves = batch.slice(0, middle), batch.slice(middle, len(batch))
            return [rows for half in halves for rows in self.rows([half], rejected)]

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """Return several batches as one Arrow batch. Raises: DeserializationError, naming the record, if a record does not fit."""
        rejected: list[RejectedRecord] = []
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
        self._null_fields.look_at(rows)
        if self._has_text:  # A value without fields has no columns of its own, so it is stored as JSON.
            texts = pa.concat_arrays([_texts(batch) for batch in batches])
            rows = pa.RecordBatch.from_arrays([*rows.columns, texts], schema=self.schema)
        if self._check_rows is not None:
            self._check_rows(rows)
        return rows


class InferredColumns(FileColumns):
    """The columns inferred from JSON, then the metadata. An instance does not change: `grown_by` returns a new one.

    The fields and their types are given as a *shape*, which describes the type of a JSON value: for example `BIGINT`, or a dict with the
    shape of each field (see `deserializers/schemas.py`).
    """

    def __init__(
        self,
        there: pa.Schema,
        reserved: Collection[str] = (),
        check_rows: Callable[[pa.RecordBatch], None] | None = None,
        *,
        kinds: Mapping[str, Sequence[str]] | None = None,
        has_metadata: bool = True,
        shape: dict[str, Shape] | None = None,
    ) -> None:
        """Derive the columns from those of a table, or from `shape` if it is given.

        - `there`: the columns that the table has.
        - `reserved`: names that no field may have, such as the names of partitions.
        - `check_rows`: raises ValueError for rows that the sink refuses.
        - `kinds`: the types that the column of a field may have, by the path of the field. Each field in `kinds` must be a column, for
          example because files are partitioned by it.
        - `has_metadata`: whether the metadata are always columns. If not, a field may have the name of a metadata column.
        - `shape`: the shape of each field, by its name, if the shapes are known already.
        """
        self._given, self._kinds, self._has_metadata = check_rows, kinds or {}, has_metadata
        self._reserved = {*reserved, *(_METADATA.names if has_metadata else ())}
        shapes = {field.name: shape_of_type(field.type) for field in there if field.name not in self._reserved}
        # A column of a type without a shape cannot hold JSON values, so a field with its name is rejected.
        self._reserved |= {name for name, each in shapes.items() if each is None}
        self.shape = {name: each for name, each in shapes.items() if each is not None} if shape is None else shape
        self._decode: Any = None
        if self.shape:
            of = row_type(self.shape)
            super().__init__(of, check_rows)
            self._decode = Json(of)
        else:
            self._check_rows, self.metadata, self.schema = check_rows, _METADATA, _METADATA
        self._null_fields = NullFields(())  # The data has named these fields, so none is misspelt.

    @property
    def kept(self) -> pa.Schema:
        """The columns to store, so that the next start of the job can derive its columns from them.

        Metadata columns are left out if fields may have their names.
        """
        if self._has_metadata:
            return self.schema
        return pa.schema([field for field in self.schema if field.name in self.shape])

    def unknown(self, batches: Sequence[RecordBatch]) -> dict[str, Shape] | None:
        """Return the shape of the records if they have fields that could be columns but are not columns yet; else None.

        Records that are nested too deeply are left out, because they are rejected later.
        """
        seen = _seen(batches, leaves_out_deep=True)
        return seen if batches and self._grow_shape(seen) != self.shape else None

    def grown_by(self, seen: Mapping[str, Shape] | None, there: pa.Schema) -> InferredColumns:
        """Return the columns `there` of a table, and a new column for each field of the shape `seen` that the table lacks.

        If `seen` is None, no column is added, even for a field that must be a column (`kinds`).
        """
        start = self._made(there)
        return start if seen is None else start._made(there, start._grow_shape(seen))

    def complete(self) -> InferredColumns:
        """Return the columns of this object, and each missing column of `kinds` with the first of its allowed types."""
        return self._made(self.kept, self._grow_shape({}))

    def _made(self, there: pa.Schema, shape: dict[str, Shape] | None = None) -> InferredColumns:
        kinds, has_metadata = self._kinds, self._has_metadata
        return InferredColumns(there, self._reserved, self._given, kinds=kinds, has_metadata=has_metadata, shape=shape)

    def _grow_shape(self, seen: Mapping[str, Shape]) -> dict[str, Shape]:
        named = with_valid_names(with_types(seen, self._kinds), self.shape, self._reserved)
        shape: dict[str, Shape] = with_missing_fields(self.shape, named)
        return shape

    def fitting(self, batches: Sequence[RecordBatch], rejected: list[RejectedRecord]) -> Iterator[RecordBatch]:
        """Yield the records that fit the columns, in their order, and add the others to `rejected`."""
        for batch in batches:
            misfits: list[RejectedRecord] = []
            self.rows([batch], misfits)
            if not misfits:
                yield batch
                continue
            rejected += misfits
            # Aggregated records share a sequence number, so the sub-sequence number is needed as well.
            bad = {(record.sequence_numbers[0], record.sub_sequence_numbers[0]) for record, _ in misfits}
            begin = 0
            for index, number in enumerate(zip(batch.sequence_numbers, batch.sub_sequence_numbers, strict=True)):
                if number in bad:
                    yield batch.slice(begin, index)
                    begin = index + 1
            yield batch.slice(begin, len(batch))

    def log_change(self, place: str, before: InferredColumns) -> None:
        """Log the columns that `before` lacks, or has with another type, in the form that `flink.deserializer.schema` accepts.

        - `place`: the table or folder that has the columns.
        """
        if changed := {name: each for name, each in self.shape.items() if before.shape.get(name) != each}:
            log.info("new or wider columns of %s: %s", place, columns_text(changed))

    def _together(self, batches: Sequence[RecordBatch]) -> pa.RecordBatch:
        """Return the records of several batches as one Arrow batch.

        Raises: ValueError if a record does not fit, or has a field without a column. The caller finds out which record it is.
        """
        for path in paths_without_column(_seen(batches), self.shape):
            raise ValueError(self._why_no_column(path))
        if self._decode is None:
            rows = arrow_columns(*batches, schema=self.metadata)
            if self._check_rows is not None:
                self._check_rows(rows)
            return rows
        try:
            typed = [batch.with_columns(values=list(self._decode.values(batch) or ())) for batch in batches]
        except (msgspec.MsgspecError, ValueError) as error:
            # `from None`, because the log would show the message of the cause, which says less.
            raise ValueError(str(error)) from None
        return super()._together(typed)

    def _why_no_column(self, path: str) -> str:
        reason = f"the field {path!r} cannot be a column"
        if path in self._reserved:
            return f"{reason}, because another column has that name; name the columns in flink.deserializer.schema"
        return f"{reason}: its name is not valid, or differs from another name in case only; name the columns in flink.deserializer.schema"


def no_columns() -> InferredColumns:
    """Return inferred columns that have no column yet, and get none for metadata."""
    return InferredColumns(pa.schema([]), has_metadata=False)


def shape_of_type(kind: pa.DataType) -> Shape:
    """Return the shape of the JSON values that fit into a column of the Arrow type `kind`.

    A *shape* describes the type of a JSON value, such as `BIGINT` (see `deserializers/schemas.py`). Return None if JSON values cannot be
    written into such a column.
    """
    types = pa.types
    if types.is_struct(kind):
        shapes = {kind.field(index).name: shape_of_type(kind.field(index).type) for index in range(kind.num_fields)}
        return None if None in shapes.values() else shapes
    if types.is_list(kind) or types.is_large_list(kind):
        return None if (item := shape_of_type(kind.value_type)) is None else [item]
    if types.is_map(kind):
        pair = shape_of_type(kind.key_type), shape_of_type(kind.item_type)
        return None if None in pair else pair
    if types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else None
    return _NAMES.get(kind)


def _seen(batches: Sequence[RecordBatch], *, leaves_out_deep: bool = False) -> Shape:
    """Return the shape into which the values of all records of the batches fit.

    `leaves_out_deep`: whether to leave out records that are nested too deeply. Otherwise they raise ValueError.
    """
    seen: Shape = {}
    for batch in batches:
        for value in batch.decoded or ():
            try:
                seen = merge_shapes(seen, shape_of(value))
            except ValueError:
                if not leaves_out_deep:
                    raise
    return seen


def check_names(fields: Iterable[pa.Field]) -> None:
    """Check the names of columns, and of the fields of objects in them.

    Raises: ConfigurationError if a name is empty, has a NUL or half a surrogate pair, or differs from another one in case only.
    """
    by_lower: dict[str, str] = {}
    for field in fields:
        _check_name(field.name, by_lower.setdefault(field.name.lower(), field.name))
        check_names(_fields_within(field.type))


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
