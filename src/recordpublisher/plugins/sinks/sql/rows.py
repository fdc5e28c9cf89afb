"""Turns batches into rows: fields of a JSON object fill the columns of their name, metadata fills others, each as the column's type."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Integer, LargeBinary, String, Table, Text, types

from recordpublisher.consumer.typed_values import has_fields, plain_value
from recordpublisher.publishers.records import RecordBatch

Convert = Callable[[Any], Any]


def conversion_of(column_type: types.TypeEngine[Any]) -> Convert:
    """The conversion from a JSON value to this column type; it raises ValueError or TypeError for a value that does not fit."""
    if isinstance(column_type, types.ARRAY):
        return partial(_array, conversion_of(column_type.item_type))
    if isinstance(column_type, types.DateTime):
        return partial(_timestamp, has_zone=bool(column_type.timezone))
    if isinstance(column_type, types.Time):
        return partial(_time_of_day, has_zone=bool(column_type.timezone))
    for kind, convert in _CONVERSIONS:
        if isinstance(column_type, kind):
            return convert
    return _nested_as_json


def cannot_take(column: Column[Any], value: Any) -> str:
    """Why a row is rejected: the column, its type and the value, the beginning of a long one."""
    return f"column '{column.name}' ({str(column.type).lower()}) cannot take {value!r:.100}"


def _array(convert: Convert, value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} is no array")
    return (
        None
        if value is None
        else [_array(convert, item) if isinstance(item, list) else convert(item) for item in value]
    )


def _nested_as_json(value: Any) -> Any:
    """Objects and lists as their JSON text."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _integer(value: Any) -> Any:
    """A number with a fraction is refused: PostgreSQL would round it."""
    if not isinstance(value, float):
        return _nested_as_json(value)
    if not value.is_integer():
        raise ValueError(f"{value} has a fraction")
    return int(value)


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _timestamp(value: Any, has_zone: bool) -> datetime | None:
    """ISO-8601 text, in UTC if it has no offset, or a number: epoch ms. A column without a zone gets the time in UTC."""
    if value is None:
        return None
    if isinstance(value, str):
        given = datetime.fromisoformat(value)
        at = (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        at = datetime.fromtimestamp(value / 1000, tz=UTC)
    else:
        raise TypeError(f"a {type(value).__name__} is no time: ISO-8601 text and epoch ms are")
    return at if has_zone else at.replace(tzinfo=None)


def _time_of_day(value: Any, has_zone: bool) -> Any:
    """The same for a time of day."""
    if not isinstance(value, str):
        return value
    given = time.fromisoformat(value)
    at = datetime.combine(date(2000, 1, 2), given, given.tzinfo or UTC).astimezone(UTC).timetz()
    return at if has_zone else at.replace(tzinfo=None)


def _date(value: Any) -> Any:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _decimal(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _uuid(value: Any) -> Any:
    return uuid.UUID(value) if isinstance(value, str) else value


_CONVERSIONS: tuple[tuple[Any, Convert], ...] = (
    (types.JSON, lambda value: value),
    (types.Date, _date),
    (types.LargeBinary, _bytes),
    (types.Uuid, _uuid),
    (types.Integer, _integer),
    (types.Float, _nested_as_json),  # a kind of Numeric
    (types.Numeric, _decimal),
    (types.String, _text),
)


IDENTITY = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns that identify a record."""


UNCONVERTIBLE = (ValueError, TypeError, ArithmeticError, RecursionError, OSError)
"""What a conversion raises for a value that does not fit; OSError: a time that the platform cannot represent."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a row: `values` by column, or the `reason` why it cannot be one."""

    batch: RecordBatch
    index: int
    values: Mapping[str, Any]
    reason: str = ""

    @property
    def record(self) -> RecordBatch:
        """The record alone, as a batch."""
        return self.batch.slice(self.index, self.index + 1)


class RowBuilder:
    """Builds the rows of one table.

    A field without a column is not stored, nor is one of a column that the database generates. A column without a field gets the
    record's metadata of that name (`RECORD_COLUMNS`), else its default. In a table keyed by record (see `is_keyed_by_record`) metadata
    takes precedence over fields.
    """

    def __init__(self, table: Table) -> None:
        taken = RECORD_COLUMNS.keys() if is_keyed_by_record(table) else ()
        columns = [column for column in table.columns if not _is_generated(column)]
        self._table = table
        self._columns = [column.name for column in columns]
        self._conversions = {column.name: conversion_of(column.type) for column in columns if column.name not in taken}
        self._filled_by_database = {column.name for column in columns if _is_filled_by_database(column)}
        self._metadata_columns = [column.name for column in columns if column.name in RECORD_COLUMNS]

    def rows(self, batch: RecordBatch) -> Iterator[Row]:
        """One row for each record, including those with a `reason`."""
        try:
            metadata = [RECORD_COLUMNS[name](batch) for name in self._metadata_columns]
        except UNCONVERTIBLE as error:
            yield from self._rows_one_by_one(batch, error)
            return
        for index, value in enumerate(batch.value_column):
            known = {name: column[index] for name, column in zip(self._metadata_columns, metadata, strict=True)}
            yield self._row(batch, index, value, known)

    def _rows_one_by_one(self, batch: RecordBatch, error: Exception) -> Iterator[Row]:
        """A value of the batch cannot be converted: convert each record alone."""
        if len(batch) == 1:
            yield Row(batch, 0, {}, f"{type(error).__name__}: {error}")
            return
        for index in range(len(batch)):
            yield from self.rows(batch.slice(index, index + 1))

    def _row(self, batch: RecordBatch, index: int, value: Any, known: dict[str, Any]) -> Row:
        fields: Any = {}
        named, name = {}, ""
        try:
            fields = value if isinstance(value, dict) else plain_value(value) if has_fields(value) else {}
            for name, convert in self._conversions.items():
                if name in fields:
                    named[name] = convert(fields[name])
        except UNCONVERTIBLE as error:
            if not name:
                return Row(batch, index, {}, f"{type(error).__name__}: {error}")
            return Row(batch, index, {}, cannot_take(self._table.columns[name], fields[name]))
        if not named and not known:
            return Row(batch, index, {}, f"no column of the table matches its value, a {type(value).__name__}")
        missing = {name: None for name in self._columns if name not in self._filled_by_database}
        return Row(batch, index, missing | known | named)


def is_keyed_by_record(table: Table) -> bool:
    """Whether the primary key is the record's identity, as in a table that the sink created."""
    return {column.name for column in table.primary_key.columns} == set(IDENTITY)


def record_columns() -> list[Column[Any]]:
    """The columns of a table that the sink creates."""
    return [
        Column("stream", String(128), primary_key=True),
        Column("shard_id", String(128), primary_key=True),
        Column("sequence_number", String(128), primary_key=True),
        Column("sub_sequence_number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("partition_key", Text),
        Column("explicit_hash_key", String(39)),
        Column("approximate_arrival_timestamp", DateTime(timezone=True)),
        Column("event_time", BigInteger),
        Column("data", LargeBinary),
        Column("value", Text),
    ]


def _is_generated(column: Column[Any]) -> bool:
    """Whether the database refuses any value for it."""
    return column.computed is not None or (column.identity is not None and bool(column.identity.always))


def _is_filled_by_database(column: Column[Any]) -> bool:
    has_counter = column.primary_key and column.autoincrement is True
    return column.server_default is not None or column.identity is not None or has_counter or _is_row_id(column)


def _is_row_id(column: Column[Any]) -> bool:
    """Whether SQLite numbers the rows: it does for an INTEGER PRIMARY KEY."""
    table = column.table
    return isinstance(column.type, Integer) and isinstance(table, Table) and list(table.primary_key.columns) == [column]


def _values_as_text(batch: RecordBatch) -> Sequence[str | None]:
    return (
        [None] * len(batch) if batch.values is None else [json.dumps(value, default=_as_json) for value in batch.values]
    )


def _as_json(value: Any) -> Any:
    return plain_value(value) if has_fields(value) else str(value)


RECORD_COLUMNS: dict[str, Callable[[RecordBatch], Sequence[Any]]] = {
    "stream": lambda batch: [batch.stream] * len(batch),
    "shard_id": lambda batch: [batch.shard_id] * len(batch),
    "sequence_number": lambda batch: batch.sequence_numbers,
    "sub_sequence_number": lambda batch: batch.sub_sequence_numbers,
    "partition_key": lambda batch: batch.partition_keys,
    "explicit_hash_key": lambda batch: batch.explicit_hash_keys,
    "approximate_arrival_timestamp": lambda batch: [record.approximate_arrival_timestamp for record in batch],
    "event_time": lambda batch: batch.event_time_column,
    "data": lambda batch: batch.data,
    "value": _values_as_text,
}
"""The metadata of a record by column name."""
