"""The columns for the fields of values, chosen from their type or from JSON objects, and the conversion of values to their types."""

import json
import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, partial
from itertools import chain
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect
from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
    Time,
    Uuid,
    types,
)
from sqlalchemy.dialects.postgresql import JSONB

from recordpublisher.consumer.deserialization import (
    column_type,
    constants_of,
    decimal_digits,
    exact_decimal_converter,
    fields_of,
    has_fields,
    plain_value,
    with_all_fields,
    without_none,
)
from recordpublisher.publishers.records import RecordBatch

from .latest_by_key import LatestByKey

FieldColumns = dict[str, types.TypeEngine[Any]]
"""The type of the column for each field."""
JSON_COLUMN = types.JSON().with_variant(JSONB(), "postgresql")
_OF_TYPE: dict[type[Any], types.TypeEngine[Any]] = {
    inspect.BoolType: Boolean(),
    inspect.IntType: BigInteger(),
    inspect.FloatType: Double(),
    inspect.StrType: Text(),
    inspect.BytesType: LargeBinary(),
    inspect.DateTimeType: DateTime(timezone=True),
    inspect.DateType: Date(),
    inspect.TimeType: Time(),
    inspect.TimeDeltaType: Text(),
    inspect.DecimalType: Numeric().with_variant(Text(), "sqlite"),
    inspect.UUIDType: Uuid().with_variant(Text(), "sqlite"),
}
_OF_CLASS: dict[type[Any], types.TypeEngine[Any]] = {
    bool: Boolean(),
    int: BigInteger(),
    float: Double(),
    str: Text(),
    bytes: LargeBinary(),
    datetime: DateTime(timezone=True),
    date: Date(),
    Decimal: _OF_TYPE[inspect.DecimalType],
    UUID: _OF_TYPE[inspect.UUIDType],
}
"""The column types by the class of a value. JSON has values of the first four classes, and Avro of all."""


@cache
def columns_of_type(of: Any) -> FieldColumns:
    """Return the columns for a type, which are empty if it has no fields."""
    return {field.name: _of_type(field.type) for field in fields_of(inspect.type_info(of)) or ()}


@cache
def bytes_of_type(of: Any) -> dict[str, Callable[[Any], Any]]:
    """Return for each field of bytes a function that gets the bytes from a value. In the JSON form of a value they would be base64."""
    fields = fields_of(inspect.type_info(of)) or ()
    return {field.name: field.take for field in fields if isinstance(without_none(field.type), inspect.BytesType)}


def columns_of_values(values: Sequence[Any], known: Collection[str]) -> FieldColumns:
    """Return the columns for fields whose names are not `known`. A field of a JSON object that is null in all values has none yet."""
    columns: FieldColumns = {}
    for of in dict.fromkeys(map(type, values)):
        columns |= columns_of_type(of) if has_fields(of) else {}
    objects = [value for value in values if isinstance(value, dict)]
    for name in dict.fromkeys(chain.from_iterable(objects)):
        if name not in known and (kinds := {type(entries.get(name)) for entries in objects} - {NoneType}):
            columns.setdefault(name, _of_kinds(kinds))
    return {name: column for name, column in columns.items() if name not in known}


def is_narrower(there: types.TypeEngine[Any], wanted: types.TypeEngine[Any]) -> bool:
    """Return whether a column of the wanted type holds every value of the column that is there, and more."""
    if isinstance(there, Integer) and isinstance(wanted, Integer):
        return _bits(there) < _bits(wanted)
    if isinstance(there, types.Float) or isinstance(wanted, types.Float):
        return isinstance(there, REAL) and isinstance(wanted, Double)
    if not isinstance(there, Numeric) or not isinstance(wanted, Numeric):
        return False
    if there.precision is None or wanted.precision is None:
        return there.precision is not None
    digits = wanted.precision - (wanted.scale or 0) - there.precision + (there.scale or 0)
    decimals = (wanted.scale or 0) - (there.scale or 0)
    return min(digits, decimals) >= 0 < max(digits, decimals)


def _bits(of: types.TypeEngine[Any]) -> int:
    return 64 if isinstance(of, BigInteger) else 16 if isinstance(of, SmallInteger) else 32


_NAMED: dict[str, types.TypeEngine[Any]] = {
    "TINYINT": SmallInteger(),
    "SMALLINT": SmallInteger(),
    "INT": Integer(),
    "FLOAT": REAL(),
}


def _of_type(info: Any) -> types.TypeEngine[Any]:
    named, info = column_type(info) or "", without_none(info)
    if isinstance(info, inspect.DecimalType) and (digits := decimal_digits(named)):
        return Numeric(*digits).with_variant(Text(), "sqlite")
    if named in _NAMED:
        return _NAMED[named]
    constants = constants_of(info)
    return _OF_TYPE.get(type(info), JSON_COLUMN) if constants is None else _of_kinds(set(map(type, constants)))


def _of_kinds(kinds: set[type[Any]]) -> types.TypeEngine[Any]:
    """Return the column for values of these classes. It is a JSON column if no other type holds them all."""
    if kinds == {int, float}:
        return _OF_CLASS[float]
    return _OF_CLASS.get(next(iter(kinds)), JSON_COLUMN) if len(kinds) == 1 else JSON_COLUMN


# --- conversions ----------------------------------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]
_DIGITS_OF_A_SECOND = 6
"""Digits of a second's fraction in every time."""
_MOST_DIGITS = 20
"""One digit more than the longest BIGINT has."""


def conversion_of(column_type: types.TypeEngine[Any], declared: types.TypeEngine[Any] | None = None) -> Convert:
    """Return the conversion from a JSON value to this column type.

    The conversion raises one of the errors in `UNCONVERTIBLE` if a value does not fit.

    `declared`: the type that the field declares. A number that does not fit its digits is refused, because PostgreSQL would round it.
    """
    if isinstance(declared, types.Numeric) and declared.precision is not None and declared.scale is not None:
        return partial(_exact, exact_decimal_converter(declared.precision, declared.scale), conversion_of(column_type))
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


def is_same_decimal(column_type: types.TypeEngine[Any], declared: types.TypeEngine[Any] | None) -> bool:
    """Return whether a column has as many digits after the point as its field declares. Then nothing is rounded."""
    if not isinstance(column_type, types.Numeric) or not isinstance(declared, types.Numeric):
        return False
    return declared.scale is not None and column_type.scale == declared.scale


def lost_by(column_type: types.TypeEngine[Any], dialect: str) -> str:
    """Return which part of a value a column of this type loses without an error; an empty text if it loses nothing."""
    if isinstance(column_type, types.ARRAY):
        return lost_by(column_type.item_type, dialect)
    if isinstance(column_type, types.Float):
        return (
            "digits after about the seventh" if dialect == "postgresql" and isinstance(column_type, types.REAL) else ""
        )
    if isinstance(column_type, types.Numeric):
        if dialect == "sqlite":
            return "digits after about the fifteenth"
        return "" if column_type.scale is None else f"digits after the first {column_type.scale} of a fraction"
    digits = getattr(column_type, "precision", None)
    if isinstance(column_type, (types.DateTime, types.Time)) and digits is not None and digits < _DIGITS_OF_A_SECOND:
        return f"digits after the first {digits} of a second's fraction"
    return ""


def cannot_take(column: Column[Any], value: Any) -> str:
    """Return why a row is rejected, with the column, its type and at most 100 characters of the value."""
    return f"column '{column.name}' ({str(column.type).lower()}) cannot take {value!r:.100}"


def _exact(exact: Convert, convert: Convert, value: Any) -> Any:
    if value is not None:
        exact(Decimal(str(value)))
    return convert(value)


def _array(convert: Convert, value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} is not an array")
    return (
        None
        if value is None
        else [_array(convert, item) if isinstance(item, list) else convert(item) for item in value]
    )


def _nested_as_json(value: Any) -> Any:
    """Return objects and lists as JSON text, and other values as they are. Raises: ValueError if NaN or infinity is inside."""
    return json.dumps(value, allow_nan=False) if isinstance(value, (dict, list)) else value


def _json(value: Any) -> Any:
    """Return the value as it is. Raises: ValueError for NaN and infinity, which JSON does not have and SQLite would store."""
    if isinstance(value, (float, dict, list)):
        json.dumps(value, allow_nan=False, default=str)
    return value


def _number(value: Any) -> Any:
    """Return the value if it can be a number.

    SQLite would store other values too, in a column of any type, and Python reads `1_0` and the digits of other scripts as numbers.

    Raises: TypeError for a boolean, an object, a list or bytes; ValueError for a text with `_` or with characters outside ASCII.
    """
    if isinstance(value, (bool, dict, list, bytes)):
        raise TypeError(f"a {type(value).__name__} is not a number")
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError(f"{value!r:.100} is not a number")
    return value


def _integer(value: Any) -> Any:
    """Return the integer of a number or of its text. Raises: ValueError for a fraction, because PostgreSQL would round it."""
    value = _number(value)
    if value is None:
        return None
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _MOST_DIGITS:
        raise ValueError(
            f"{value!r:.100} has more digits than a column of integers"
        )  # int() would write out all its zeros
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value} has a fraction")
    return number


def _text(value: Any) -> Any:
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, allow_nan=False)


def _timestamp(value: Any, has_zone: bool) -> datetime | None:
    """Return the time of an ISO-8601 text, of a datetime, or of a number (epoch ms).

    A text or datetime without an offset is in UTC. A column without a zone gets the time in UTC.

    Raises: TypeError for a value of another type; ValueError for a text that is not ISO-8601.
    """
    if value is None:
        return None
    if isinstance(value, (str, datetime)):
        given = datetime.fromisoformat(value) if isinstance(value, str) else value
        at = (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        at = datetime.fromtimestamp(value / 1000, tz=UTC)
    else:
        raise TypeError(f"a {type(value).__name__} is not a time: ISO-8601 text and epoch ms are")
    return at if has_zone else at.replace(tzinfo=None)


def _time_of_day(value: Any, has_zone: bool) -> Any:
    """Return the time of day of an ISO-8601 text, in UTC if it has no offset. A column without a zone gets the time in UTC."""
    if not isinstance(value, str):
        return value
    given = time.fromisoformat(value)
    at = datetime.combine(date(2000, 1, 2), given, given.tzinfo or UTC).astimezone(UTC).timetz()
    return at if has_zone else at.replace(tzinfo=None)


def _date(value: Any) -> Any:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _decimal(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(_number(value), (int, float, str)) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _uuid(value: Any) -> Any:
    return uuid.UUID(value) if isinstance(value, str) else value


_CONVERSIONS: tuple[tuple[Any, Convert], ...] = (
    (types.JSON, _json),
    (types.Date, _date),
    (types.LargeBinary, _bytes),
    (types.Uuid, _uuid),
    (types.Integer, _integer),
    (types.Float, _number),  # It comes first, because a Float is a Numeric.
    (types.Numeric, _decimal),
    (types.String, _text),
)


UNCONVERTIBLE = (ValueError, TypeError, ArithmeticError, RecursionError, OSError)
"""The errors that a conversion raises for a value that does not fit. OSError stands for a time that the platform cannot represent."""


def is_storable_json(value: Any) -> bool:
    """Return whether PostgreSQL's jsonb accepts a value. It refuses the NUL character, half a surrogate pair, NaN and infinity."""
    try:
        return b"\\u0000" not in json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False


def storable_json(value: Any) -> Any:
    """Return the value with each character that jsonb refuses as an escape.

    A dead letter must be stored whatever text is in it. Its original bytes are in the column `data`.

    Raises: ValueError for NaN and infinity, which JSON does not have.
    """
    if isinstance(value, str):
        return value.replace("\0", "\\u0000").encode(errors="backslashreplace").decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value}")
        return value
    if isinstance(value, dict):
        return {storable_json(key): storable_json(item) for key, item in value.items()}
    return list(map(storable_json, value)) if isinstance(value, list) else value


# Turns batches into rows. Fields of a value fill the columns with their names, and metadata fills other columns. Values
# are converted to the column's type.

IDENTITY = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns that identify a record."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a row: `values` by column, or the `reason` why it is rejected. `is_delete`: the row of its key is deleted."""

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
    - With `stores_all`, a record is rejected if a field that is not null has no column. Before that, each field that can have a column has
      got one.
    - With `nan_is_null`, a record with NaN is rejected, because SQLite stores NaN as NULL.
    - With `latest`, each row has a key, and a row that is a delete has only the key.
    - `declared`: the column types that the fields ask for.
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
        self._is_of_fields = is_of_fields(table)
        self._owned = (
            METADATA if self._is_of_fields else frozenset()
        )  # no field of a record has a place in these columns
        metadata = METADATA if self._is_of_fields else RECORD_COLUMNS.keys()
        taken = metadata if is_keyed_by_record(table) else ()
        columns = [column for column in table.columns if not _is_generated(column)]
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
        self._filled_by_database = {column.name for column in columns if _is_filled_by_database(column)}
        self._metadata_columns = {
            column.name: _json_values
            if column.name == "value" and isinstance(column.type, types.JSON)
            else RECORD_COLUMNS[column.name]
            for column in columns
            if column.name in metadata
        }

    def unstored(self, fields: Collection[str]) -> list[str] | None:
        """Return the fields that have no column; None if no part of a record has one, so that each record would be rejected."""
        left = [name for name in fields if name not in self._conversions]
        return left if self._metadata_columns or len(left) < len(fields) else None

    def losses(self, dialect: str, fields: Collection[str]) -> list[str]:
        """Return which columns round values without an error, and how, by their types.

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
        """Yield the rows of a batch that has a value which cannot be converted: each record is converted alone."""
        if len(batch) == 1:
            yield Row(batch, 0, {}, f"{type(error).__name__}: {error}")
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
            # Metadata that is a part of the key is converted here, because the database would convert it anyway, for example 012 to 12.
            given = {key: known[key] for key in self._key_conversions if key in known} | fields
            for name, convert in conversions.items():
                if name in given:
                    named[name] = convert(given[name])
                    if self._nan_is_null and named[name] != named[name]:
                        raise ValueError("SQLite stores NaN as NULL")
        except UNCONVERTIBLE as error:
            if not name:
                return Row(batch, index, {}, f"{type(error).__name__}: {error}")
            return Row(batch, index, {}, cannot_take(self._table.columns[name], given[name]))
        if special := self._delete_or_bad_key(batch, index, known | named, is_delete):
            return special
        if not named and (not known or (self._is_of_fields and not is_object)):
            return Row(batch, index, {}, f"no column of the table matches its value, a {type(value).__name__}")
        known_names = self._must_know if self._must_know is not None and isinstance(value, dict) else fields
        if left := [
            key for key in fields if (key not in known_names or key in self._owned) and fields[key] is not None
        ]:
            return Row(batch, index, {}, f"field {left[0]!r:.100} of its value cannot have a column of the table")
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
        """Return the fields of a typed value in their JSON form, but as bytes if the column is one of bytes."""
        fields: dict[str, Any] = plain_value(value)
        takes = bytes_of_type(value.__class__) if self._columns_of_bytes else {}
        return fields | {name: takes[name](value) for name in takes.keys() & self._columns_of_bytes}


def is_keyed_by_record(table: Table) -> bool:
    """Return whether the primary key is the record's identity, as in a table that the sink created without a key of its fields."""
    return {column.name for column in table.primary_key.columns} == set(IDENTITY)


METADATA = frozenset((*IDENTITY, "partition_key", "approximate_arrival_timestamp", "event_time"))
"""The metadata columns of a table whose other columns are for fields."""


def is_of_fields(table: Table) -> bool:
    """Return whether the sink created the table for fields: it has a record's metadata, but not the columns of whole records."""
    names = set(table.columns.keys())
    return is_keyed_by_record(table) and names >= METADATA and "explicit_hash_key" not in names


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


def _is_generated(column: Column[Any]) -> bool:
    """Return whether the database generates the column, and refuses any value for it."""
    return column.computed is not None or (column.identity is not None and bool(column.identity.always))


def _is_filled_by_database(column: Column[Any]) -> bool:
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
