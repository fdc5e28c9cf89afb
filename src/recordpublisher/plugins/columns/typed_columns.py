"""The Arrow columns of typed values: one column for each field. An object inside a field becomes a struct."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from math import isfinite
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import inspect

from recordpublisher.consumer.typed_values import (
    TypedField,
    column_type,
    constants_of,
    decimal_digits,
    exact_decimal,
    fields_of,
    name_of,
    without_none,
)
from recordpublisher.publishers.errors import ConfigurationError

from .column_buffers import INSTANT, datetime_column

VALUE = "value"
"""The column of values without fields, such as numbers and lists."""
_VALID = "a type of numbers, texts, bytes, times, lists, maps and objects of these"
_KNOWN: dict[type[Any], pa.DataType] = {
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BytesType: pa.binary(),
    inspect.DateTimeType: INSTANT,
    inspect.DateType: pa.date32(),
    inspect.TimeType: pa.time64("us"),
    inspect.TimeDeltaType: pa.duration("us"),
    inspect.UUIDType: pa.string(),
}
_NAMED = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "FLOAT": pa.float32()}
_GREATEST_FLOAT = 3.4028234663852886e38
_OF_CONSTANTS = {str: pa.string(), int: pa.int64()}
_LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.CollectionType)


class _Column(NamedTuple):
    """An Arrow type, and the function that converts a value that is not None into one that Arrow accepts for the type."""

    type: pa.DataType
    convert: Callable[[Any], Any]

    def converted(self, values: Iterable[Any]) -> list[Any]:
        if self.convert is _as_it_is:
            return list(values)
        return [None if value is None else self.convert(value) for value in values]


def _as_it_is(value: Any) -> Any:
    return value


def _decimal_column(precision: int, scale: int) -> _Column:
    """Return a column of decimals.

    Its function checks each number, because for a large exponent Arrow itself ends the process, or makes up a number.
    """
    return _Column(pa.decimal128(precision, scale), exact_decimal(precision, scale))


def _float_of_32_bits(value: float) -> float:
    """Return the value. Raises: ValueError if it is too large for 32 bits, because Arrow would turn it into infinity."""
    if isfinite(value) and abs(value) > _GREATEST_FLOAT:
        raise ValueError(f"{value} is too large for 32 bits")
    return value


def time_in_utc(value: time) -> time:
    """Return a time of day in UTC, without a zone. A time that has no zone counts as UTC.

    Raises: ValueError if the offset of its zone depends on the date.
    """
    if value.tzinfo is None:
        return value
    if value.utcoffset() is None:
        raise ValueError(f"the offset of {value} depends on the date")
    return datetime.combine(date(2000, 1, 2), value).astimezone(UTC).time()


_CONVERSIONS: dict[type[Any], Callable[[Any], Any]] = {inspect.TimeType: time_in_utc, inspect.UUIDType: str}
_ANY_DECIMAL = _decimal_column(38, 18)
"""The column of a Decimal without digits of its own: Spark uses the same digits for a Decimal of Python."""


class TypedColumns:
    """The columns of values of one type; `fields` describes them."""

    def __init__(self, of: Any) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError if a field has no Arrow type; it names the field."""
        self._name, info = name_of(of), inspect.type_info(of)
        fields = fields_of(info) or [TypedField(VALUE, info, _as_it_is)]
        self._columns = [(field, self._column(field.type, f"$.{field.name}", (of,))) for field in fields]
        self.fields = [pa.field(field.name, column.type) for field, column in self._columns]

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return an array for each field. Raises: ValueError if a value does not fit its column; it names the field."""
        return [self._array(field, column, values) for field, column in self._columns]

    def _array(self, field: TypedField, column: _Column, values: Sequence[Any]) -> pa.Array:
        try:
            taken = column.converted(map(field.take, values))
            return datetime_column(taken) if column.type == INSTANT else pa.array(taken, column.type)
        except (pa.ArrowException, OverflowError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"field '{field.name}' of {self._name} is no {column.type} of Arrow: {error}") from error

    def _column(self, info: Any, place: str, inside: tuple[Any, ...]) -> _Column:
        """Return the column of a field.

        - `place`: the path of the field, such as `$.address.country`.
        - `inside`: the classes around the field. A class inside itself has no Arrow type.
        """
        named, info = column_type(info), without_none(info)
        if named is not None or isinstance(info, inspect.DecimalType):
            return self._named_column(named, info, place)
        if type(info) in _KNOWN:
            return _Column(_KNOWN[type(info)], _CONVERSIONS.get(type(info), _as_it_is))
        if (constants := constants_of(info)) is not None:
            return self._constants(constants, info, place)
        if isinstance(info, _LISTS):
            item = self._column(info.item_type, f"{place}[]", inside)
            return _Column(pa.list_(item.type), item.converted)
        if isinstance(info, inspect.DictType):
            key, item = self._column(info.key_type, place, inside), self._column(info.value_type, f"{place}[]", inside)
            return _Column(pa.map_(key.type, item.type), lambda value: _pairs(key, item, value))
        return self._struct(info, place, inside)

    def _named_column(self, named: str | None, info: Any, place: str) -> _Column:
        """Return the column that the field names itself, or for a decimal that names none, a column with the usual digits.

        Raises: ConfigurationError if the named column type is not valid, or does not fit the field's type.
        """
        try:
            digits = decimal_digits(named or "")
        except ValueError as error:
            raise ConfigurationError("deserializer", self._name, _VALID, reason=f"{place}: {error}") from error
        if isinstance(info, inspect.DecimalType) and (digits or named is None):
            return _decimal_column(*digits) if digits else _ANY_DECIMAL
        takes = inspect.FloatType if named == "FLOAT" else inspect.IntType
        if named not in _NAMED or not isinstance(info, takes):
            valid = f"{', '.join(_NAMED)} of a number, or DECIMAL(p, s) of a Decimal"
            raise ConfigurationError("deserializer", self._name, valid, reason=f"{place} names the column type {named}")
        return _Column(_NAMED[named], _float_of_32_bits if named == "FLOAT" else _as_it_is)

    def _struct(self, info: Any, place: str, inside: tuple[Any, ...]) -> _Column:
        if (fields := fields_of(info)) is None or info.cls in inside:
            raise self._refusal(info, place)
        inside = (*inside, info.cls)
        columns = {field.name: self._column(field.type, f"{place}.{field.name}", inside) for field in fields}

        def convert(value: Any) -> dict[str, Any]:
            return {field.name: columns[field.name].converted([field.take(value)])[0] for field in fields}

        return _Column(pa.struct([(name, column.type) for name, column in columns.items()]), convert)

    def _constants(self, constants: list[Any], info: Any, place: str) -> _Column:
        kinds = set(map(type, constants))
        if len(kinds) != 1 or (kind := _OF_CONSTANTS.get(kinds.pop())) is None:
            raise self._refusal(info, place)
        return _Column(kind, attrgetter("value") if isinstance(info, inspect.EnumType) else _as_it_is)

    def _refusal(self, info: Any, place: str) -> ConfigurationError:
        kind = type(info).__name__.removesuffix("Type")
        what = getattr(getattr(info, "cls", None), "__name__", kind)
        reason = f"{place} is {what}, for which there is no column of Arrow"
        return ConfigurationError("deserializer", self._name, _VALID, reason=reason)


def _pairs(key: _Column, item: _Column, entries: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(zip(key.converted(entries), item.converted(entries.values()), strict=True))
