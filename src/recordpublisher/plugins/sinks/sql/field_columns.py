"""Chooses the columns for the fields of values, from their type or from JSON objects."""

from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any
from uuid import UUID

from msgspec import inspect
from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    Date,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Text,
    Time,
    Uuid,
    types,
)
from sqlalchemy.dialects.postgresql import JSONB

from recordpublisher.consumer.column_types import column_type, decimal_digits
from recordpublisher.consumer.typed_values import constants_of, fields_of, has_fields, without_none

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
