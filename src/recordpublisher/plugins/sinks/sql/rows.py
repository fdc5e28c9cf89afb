"""Turns batches into rows. Fields of a value fill the columns of the same names, metadata fills other columns."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    types,
)
from sqlalchemy.dialects.postgresql import JSONB

from recordpublisher.consumer.typed_values import (
    has_fields,
    plain_value,
    with_all_fields,
)
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import describe_error

from .column_types import (
    UNCONVERTIBLE,
    FieldColumns,
    bytes_getters_of,
    conversion_of,
    is_same_decimal,
    is_storable_json,
    lost_by,
    storable_json,
    why_rejected,
)
from .latest_by_key import LatestByKey

IDENTITY = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns that identify a record."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a row.

    - `values`: the value of each column.
    - `reason`: why the row is rejected, if it is.
    - `is_delete`: whether the record deletes the row of its key.
    """

    batch: RecordBatch
    index: int
    values: Mapping[str, Any]
    reason: str = ""
    is_delete: bool = False

    @property
    def record(self) -> RecordBatch:
        """The record, as a batch of one."""
        return self.batch.slice(self.index, self.index + 1)


class RowBuilder:
    """Builds the rows of one table.

    - A field without a column is not stored. A field is not stored either if the database generates its column.
    - A column without a field gets the record's metadata of that name (`RECORD_COLUMNS`), else its default.
    - In a table keyed by record (see `is_keyed_by_record`), metadata takes precedence over fields.
    - With `stores_all`, a record is rejected if a field that is not null has no column. The table then has a column for each field that can
      have one.
    - With `nan_is_null`, a record with NaN is rejected, because SQLite stores NaN as NULL.
    - With `latest`, each row has a key, and a row that is a delete has only the key.
    - `declared`: the column types that the annotations of fields name.
    """

    def __init__(
        self,
        table: Table,
        stores_all: bool = False,
        nan_is_null: bool = False,
        latest: LatestByKey | None = None,
        declared: FieldColumns | None = None,
    ) -> None:
        self._latest = latest
        self._nan_is_null = nan_is_null  # SQLite stores NaN as NULL.
        self._must_know = set(table.columns.keys()) if stores_all else None
        self._is_of_fields = is_made_for_fields(table)
        self._owned = (
            METADATA if self._is_of_fields else frozenset()
        )  # no field of a record has a place in these columns
        made = columns_made_first(table)
        metadata: Collection[str] = RECORD_COLUMNS.keys()
        if self._is_of_fields:
            metadata = METADATA
        elif latest is not None and made:
            # The sink created the table for a key, so its other columns are those of fields, even if one is named `value`.
            metadata = made
        taken = metadata if is_keyed_by_record(table) else ()
        columns = [column for column in table.columns if not is_generated(column)]
        self._table = table
        self._columns = [column.name for column in columns]
        self._declared = declared or {}
        self._conversions = {
            column.name: conversion_of(column.type, self._declared.get(column.name))
            for column in columns
            if column.name not in taken
        }
        self._key_conversions = {
            name: convert for name, convert in self._conversions.items() if latest is not None and name in latest.key
        }
        self._columns_of_bytes = {
            name for name in self._conversions if isinstance(table.columns[name].type, LargeBinary)
        }
        self._filled_by_database = {column.name for column in columns if is_filled_by_database(column)}
        self._metadata_columns = {
            column.name: _json_values
            if column.name == "value" and isinstance(column.type, types.JSON)
            else RECORD_COLUMNS[column.name]
            for column in columns
            if column.name in metadata
        }

    def unstored(self, fields: Collection[str]) -> list[str] | None:
        """Return the fields that have no column. Return None if neither a field nor metadata has one: each record would be rejected."""
        left = [name for name in fields if name not in self._conversions]
        return left if self._metadata_columns or len(left) < len(fields) else None

    def lost(self, fields: Collection[str]) -> list[str]:
        """Return the fields of which nothing is stored: neither in a column of their own, nor in the column `value` of whole records."""
        if "value" in self._metadata_columns:
            return []
        read = set() if self._latest is None else {self._latest.delete_field}
        return sorted(set(fields) - read - set(self._table.columns.keys()))

    def losses(self, dialect: str, fields: Collection[str]) -> list[str]:
        """Return in words which columns lose part of a value without an error, and which part.

        `fields`: the fields whose columns are checked; all columns if it is empty.
        """
        columns = [self._table.columns[name] for name in self._conversions if not fields or name in fields]
        return [
            f"'{column.name}' ({str(column.type).lower()}: {lost})"
            for column in columns
            if (lost := lost_by(column.type, dialect))
            and not is_same_decimal(column.type, self._declared.get(column.name))
        ]

    def rows(self, batch: RecordBatch) -> Iterator[Row]:
        """Yield one row for each record, including rejected ones, which have a `reason`."""
        try:
            metadata = [values_of(batch) for values_of in self._metadata_columns.values()]
        except UNCONVERTIBLE as error:
            yield from self._rows_one_by_one(batch, error)
            return
        for index, value in enumerate(batch.values):
            known = {name: column[index] for name, column in zip(self._metadata_columns, metadata, strict=True)}
            yield self._row(batch, index, value, known)

    def _rows_one_by_one(self, batch: RecordBatch, error: Exception) -> Iterator[Row]:
        """Yield the rows of a batch, each converted alone, because `error` does not say which value cannot be converted."""
        if len(batch) == 1:
            yield Row(batch, 0, {}, describe_error(error))
            return
        for index in range(len(batch)):
            yield from self.rows(batch.slice(index, index + 1))

    def _row(self, batch: RecordBatch, index: int, value: Any, known: dict[str, Any]) -> Row:
        fields: Any = {}
        given: dict[str, Any] = {}
        named, name = {}, ""
        is_object = isinstance(value, dict) or has_fields(value)
        conversions = self._conversions
        try:
            fields = value if isinstance(value, dict) else self._fields(value) if is_object else {}
            if is_delete := self._latest is not None and self._latest.deletes(fields):
                conversions = self._key_conversions
            # Metadata in the key is converted before keys are compared, because the database would make one key of 012 and 12.
            given = {key: known[key] for key in self._key_conversions if key in known} | fields
            for name, convert in conversions.items():
                if name in given:
                    named[name] = convert(given[name])
                    if self._nan_is_null and named[name] != named[name]:
                        raise ValueError("SQLite stores NaN as NULL")
        except UNCONVERTIBLE as error:
            if not name:
                return Row(batch, index, {}, describe_error(error))
            return Row(batch, index, {}, why_rejected(self._table.columns[name], given[name]))
        if special := self._delete_or_bad_key(batch, index, known | named, is_delete):
            return special
        if not named and (not known or (self._is_of_fields and not is_object)):
            return Row(
                batch,
                index,
                {},
                f"no column of the table matches its value, which is of the type {type(value).__name__}",
            )
        known_names = self._must_know if self._must_know is not None and isinstance(value, dict) else fields
        if left := [
            key for key in fields if (key not in known_names or key in self._owned) and fields[key] is not None
        ]:
            return Row(batch, index, {}, f"field {repr_of(left[0])} of its value cannot have a column of the table")
        missing = {name: None for name in self._columns if name not in self._filled_by_database}
        return Row(batch, index, missing | known | named)

    def _delete_or_bad_key(self, batch: RecordBatch, index: int, values: dict[str, Any], is_delete: bool) -> Row | None:
        """Return the row of a delete, or the rejected row of a record without a valid key; None for any other record."""
        if self._latest is None:
            return None
        if reason := self._latest.why_no_key(self._table, values):
            return Row(batch, index, {}, reason)
        key = {name: values[name] for name in self._latest.key}
        return Row(batch, index, key, is_delete=True) if is_delete else None

    def _fields(self, value: Any) -> dict[str, Any]:
        """Return the fields of a typed value in their JSON form, or as bytes for a column of bytes."""
        fields: dict[str, Any] = plain_value(value)
        takes = bytes_getters_of(value.__class__) if self._columns_of_bytes else {}
        return fields | {name: takes[name](value) for name in takes.keys() & self._columns_of_bytes}


def is_keyed_by_record(table: Table) -> bool:
    """Return whether the primary key is the record's identity, as in a table that the sink created without a key of its fields."""
    return {column.name for column in table.primary_key.columns} == set(IDENTITY)


METADATA = frozenset((*IDENTITY, "partition_key", "approximate_arrival_timestamp", "event_time"))
"""The metadata columns of a table whose other columns are for fields."""


def is_made_for_fields(table: Table) -> bool:
    """Return whether the sink created the table for fields: it has a record's metadata, but not the columns of whole records."""
    if not is_keyed_by_record(table) or not set(table.columns.keys()) >= METADATA:
        return False
    # A field may be named `explicit_hash_key` too. Its column was added after those of the metadata.
    return "explicit_hash_key" not in table.columns or set(columns_made_first(table)) == METADATA


def columns_made_first(table: Table) -> list[str]:
    """Return the metadata columns with which the sink began a table that it created for fields; [] for any other table.

    They are the first columns, in the order of `record_columns`. In a table with a key, a field may have the name of a metadata column, and
    then its column comes later.
    """
    first = list(takewhile(METADATA.__contains__, table.columns.keys()))
    is_in_order = first == [column.name for column in record_columns() if column.name in first]
    return first if is_in_order and set(table.columns.keys()) >= METADATA else []


def record_columns() -> list[Column[Any]]:
    """Return the columns of a table that the sink creates for whole records."""
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
        Column("value", Text().with_variant(JSONB(), "postgresql")),
    ]


def is_generated(column: Column[Any]) -> bool:
    """Return whether the database generates the column, and refuses any value for it."""
    return column.computed is not None or (column.identity is not None and bool(column.identity.always))


def is_filled_by_database(column: Column[Any]) -> bool:
    """Return whether the database fills the column of a row that has no value for it."""
    has_counter = column.primary_key and column.autoincrement is True
    return column.server_default is not None or column.identity is not None or has_counter or _is_row_id(column)


def _is_row_id(column: Column[Any]) -> bool:
    """Return whether SQLite fills the column with the number of the row, as it does for an INTEGER PRIMARY KEY."""
    table = column.table
    return isinstance(column.type, Integer) and isinstance(table, Table) and list(table.primary_key.columns) == [column]


def _values_as_text(batch: RecordBatch) -> Sequence[str | None]:
    return (
        [None] * len(batch)
        if batch.decoded is None
        else [json.dumps(value, default=_as_json, allow_nan=False) for value in batch.decoded]
    )


def _json_values(batch: RecordBatch) -> Sequence[Any]:
    """Return the values for a JSON column, as the dicts, lists and plain values that the driver can write as JSON."""
    if batch.decoded is None:
        return [None] * len(batch)
    values = msgspec.to_builtins(with_all_fields(batch.decoded), enc_hook=_as_json)
    return values if is_storable_json(values) else list(map(storable_json, values))


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
"""Functions that return the metadata of a batch's records, by column name."""
