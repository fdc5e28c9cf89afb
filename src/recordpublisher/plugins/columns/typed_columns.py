"""The Arrow columns of typed values: one column for each field, then the metadata of the records."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from msgspec import inspect

from recordpublisher.consumer.deserialization import Deserializer, PreparedDeserializer, prepare_values
from recordpublisher.consumer.typed_values import (
    TypedField,
    column_type,
    constants_of,
    decimal_digits,
    exact_decimal_converter,
    fields_of,
    has_fields,
    type_info,
    type_name,
    type_without_none,
)
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import few_of

from .record_columns import INSTANT, RECORD_SCHEMA, arrow_columns, datetime_column
from .record_fields import DATA

log = logging.getLogger("recordpublisher.columns")
_FEW_ROWS, _ENOUGH_ROWS = 100, 1_000
"""`NullFields` logs nothing for fewer records than the first number. It logs once the second number was checked, or at the end."""
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


class TypedColumns:
    """The columns that hold values of one Python type: one column for each field of the type, without the metadata columns.

    `fields` has the names and Arrow types of the columns.
    """

    def __init__(self, of: Any) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError, naming the field, if a field has no Arrow type."""
        self._name, info = type_name(of), type_info(of)
        fields = fields_of(info) or [TypedField(VALUE, info, _as_it_is)]
        self._columns = [(field, self._column(field.type, f"$.{field.name}", (of,))) for field in fields]
        self.fields = [pa.field(field.name, column.type) for field, column in self._columns]

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return an array for each field. Raises: ValueError, naming the field, if a value does not fit its column."""
        return [self._array(field, column, values) for field, column in self._columns]

    def _array(self, field: TypedField, column: _Column, values: Sequence[Any]) -> pa.Array:
        try:
            taken = column.convert_all(map(field.take, values))
            return datetime_column(taken) if column.type == INSTANT else pa.array(taken, column.type)
        except (pa.ArrowException, OverflowError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"field '{field.name}' of {self._name} does not fit the Arrow type {column.type}: {error}"
            ) from error

    def _column(self, info: Any, place: str, inside: tuple[Any, ...]) -> _Column:
        """Return the column of a field.

        - `place`: the path of the field, such as `$.address.country`.
        - `inside`: the classes that contain the field. A class inside itself has no Arrow type.
        """
        named, info = column_type(info), type_without_none(info)
        if named is not None or isinstance(info, inspect.DecimalType):
            return self._named_column(named, info, place)
        if type(info) in _KNOWN:
            return _Column(_KNOWN[type(info)], _CONVERSIONS.get(type(info), _as_it_is))
        if (constants := constants_of(info)) is not None:
            return self._constants(constants, info, place)
        if isinstance(info, _LISTS):
            item = self._column(info.item_type, f"{place}[]", inside)
            return _Column(pa.list_(item.type), item.convert_all)
        if isinstance(info, inspect.DictType):
            key, item = self._column(info.key_type, place, inside), self._column(info.value_type, f"{place}[]", inside)
            return _Column(pa.map_(key.type, item.type), lambda value: _pairs(key, item, value))
        return self._struct(info, place, inside)

    def _named_column(self, named: str | None, info: Any, place: str) -> _Column:
        """Return the column of the type that a field's annotation names. A Decimal whose annotation names none gets a column of 38 digits.

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
            valid = f"{', '.join(_NAMED)} for a number, or DECIMAL(p, s) for a Decimal"
            raise ConfigurationError(
                "deserializer",
                self._name,
                valid,
                reason=f"{place} names the column type {named}, which is not known or does not fit the field",
            )
        return _Column(_NAMED[named], _float_of_32_bits if named == "FLOAT" else _whole_number)

    def _struct(self, info: Any, place: str, inside: tuple[Any, ...]) -> _Column:
        # A class that contains itself would need a column of unlimited depth.
        if (fields := fields_of(info)) is None or info.cls in inside:
            raise self._refusal(info, place)
        inside = (*inside, info.cls)
        columns = {field.name: self._column(field.type, f"{place}.{field.name}", inside) for field in fields}

        def convert(value: Any) -> dict[str, Any]:
            return {field.name: columns[field.name].convert_all([field.take(value)])[0] for field in fields}

        return _Column(pa.struct([(name, column.type) for name, column in columns.items()]), convert)

    def _constants(self, constants: list[Any], info: Any, place: str) -> _Column:
        kinds = set(map(type, constants))
        if len(kinds) != 1 or (kind := _OF_CONSTANTS.get(kinds.pop())) is None:
            raise self._refusal(info, place)
        return _Column(kind, attrgetter("value") if isinstance(info, inspect.EnumType) else _as_it_is)

    def _refusal(self, info: Any, place: str) -> ConfigurationError:
        kind = type(info).__name__.removesuffix("Type")
        what = getattr(getattr(info, "cls", None), "__name__", kind)
        reason = f"{place} is {what}, for which Arrow has no column"
        return ConfigurationError("deserializer", self._name, _VALID, reason=reason)


def to_arrow(*batches: RecordBatch, into: Any = None) -> pa.RecordBatch:
    """Return the records of batches as one `pyarrow.RecordBatch`.

    Its columns are the fields of typed values and the metadata; for other values they are the columns of the Spark source.

    Arrow takes numbers without a copy; texts and payloads are copied once. Needs the extra `arrow`.

    - `batches`: the batches in the order of the rows.
    - `into`: the type of the values. If it is None, the type is the class of the values, provided that it has fields.

    Raises:
        ConfigurationError: if a field has no Arrow type, or if `into` is None and the values are of several classes.
        DeserializationError: if a value does not fit its column.
    """
    if into is None:
        classes = list(dict.fromkeys(type(value) for batch in batches for value in batch.decoded or ()))
        if any(map(has_fields, classes)):
            into = classes[0]
            if len(classes) > 1:
                names = ", ".join(of.__name__ for of in classes)
                raise ConfigurationError(
                    "into", None, "the type of all values", reason=f"the values are of several types: {names}"
                )
    return frame_columns(into).batch(*batches)


@cache
def frame_columns(of: Any = None) -> FrameColumns:
    """Return the columns of a type. They are made once and kept. Raises: ConfigurationError if a field has no Arrow type."""
    return FrameColumns(of)


class FrameColumns:
    """The columns of a type's fields, then the metadata; without a type, the columns of `RECORD_SCHEMA`.

    If a field has the name of a metadata column, the field replaces that column.
    """

    def __init__(self, of: Any = None) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError, naming the field, if a field has no Arrow type."""
        self._typed = None if of is None else TypedColumns(of)
        fields = [] if self._typed is None else self._typed.fields
        # The fields replace the payload that they come from, and metadata of the same names.
        hidden = {DATA, *(field.name for field in fields)} if fields else ()
        self.metadata = pa.schema([field for field in RECORD_SCHEMA if field.name not in hidden])
        self.schema = pa.schema([*fields, *self.metadata])

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """Return several batches as one Arrow batch.

        Raises: DeserializationError, naming the record and the field, if a value does not fit its column.
        """
        metadata = arrow_columns(*batches, schema=self.metadata)
        if self._typed is None:
            return metadata
        return pa.RecordBatch.from_arrays([*self.field_columns(*batches), *metadata.columns], schema=self.schema)

    def field_columns(self, *batches: RecordBatch) -> list[pa.Array]:
        """Return the columns of the fields alone, in the order of `schema`.

        Raises: DeserializationError, naming the record and the field, if a value does not fit its column.
        """
        if self._typed is None:
            return []
        try:
            return self._typed.arrays([value for batch in batches for value in batch.values])
        except ValueError:
            # The bad record is searched only after the whole batch has failed, because checking each record would cost good batches as
            # much.
            for batch in batches:
                self._check_each(self._typed, batch)
            raise

    def check(self, values: Sequence[Any]) -> None:
        """Check that values fit the columns. Raises: ValueError, naming the field, if a value does not fit."""
        if self._typed is not None:
            self._typed.arrays(values)

    @staticmethod
    def _check_each(typed: TypedColumns, batch: RecordBatch) -> None:
        for value, number in zip(batch.values, batch.sequence_numbers, strict=True):
            try:
                typed.arrays([value])
            except ValueError as error:
                raise DeserializationError(batch.stream, batch.shard_id, number, str(error)) from error


class NullFields:
    """Logs once which fields were null in all of the first records. A misspelt field is always null.

    Whole columns are checked, not single records. After the log line, or once each field had a value, nothing more is checked.

    - `names`: the fields to check.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [*names]
        self._rows = 0

    def look_at(self, rows: pa.RecordBatch) -> None:
        """Check the columns of further records. Write the log line once enough records were checked."""
        if self._names:
            self._rows += len(rows)
            self._names = [name for name in self._names if rows.column(name).null_count == len(rows)]
            if self._rows >= _ENOUGH_ROWS:
                self.tell()

    def tell(self) -> None:
        """Log the fields that were null in all records so far. Do nothing if only a few records were checked."""
        if self._names and self._rows >= _FEW_ROWS:
            names = few_of([*map(repr, self._names)])
            log.warning(
                "fields that were null in all of the first %s records: %s. Check whether the records name them differently",
                f"{self._rows:,}",
                names,
            )
            self._names = []


class ChecksColumns(Protocol):
    """Columns that know which values fit them."""

    def check(self, values: Sequence[Any]) -> None:
        """Check that values fit the columns. Raises: ValueError or TypeError if a value does not fit."""


class CheckedValues:
    """Wraps a deserializer, and checks that its values fit the columns. Records with other values are bad (`flink.deserializer.error`)."""

    def __init__(self, values: Deserializer[Any], columns: ChecksColumns) -> None:
        self._values, self._columns = values, columns
        self.decompressor = getattr(values, "decompressor", None)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the values of the wrapped deserializer. Raises: ValueError if a value does not fit its column."""
        values = self._values.values(batch)
        self._columns.check(batch.data if values is None else values)
        return values

    async def prepare(self, batch: RecordBatch) -> None:
        """Let the wrapped deserializer prepare for the batch."""
        if isinstance(self._values, PreparedDeserializer):
            await prepare_values(self._values, batch)


class _Column(NamedTuple):
    """An Arrow type, and the function that converts a value that is not None into one that Arrow accepts for the type."""

    type: pa.DataType
    convert: Callable[[Any], Any]

    def convert_all(self, values: Iterable[Any]) -> list[Any]:
        """Convert each value that is not None."""
        if self.convert is _as_it_is:
            return list(values)
        if self.convert is _whole_number:
            taken = list(values)
            # This conversion to a C array costs less than a look at each number.
            with suppress(TypeError, OverflowError):
                array("q", [value for value in taken if value is not None])
                return taken
            values = taken
        return [None if value is None else self.convert(value) for value in values]


def _pairs(key: _Column, item: _Column, entries: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(zip(key.convert_all(entries), item.convert_all(entries.values()), strict=True))


def _as_it_is(value: Any) -> Any:
    return value


def _whole_number(value: Any) -> Any:
    """Check that a number has no fraction, and return it. Arrow would cut the fraction off.

    Raises: ValueError if it has one.
    """
    if isinstance(value, (float, Decimal)) and value != int(value):
        raise ValueError(f"{value} has a fraction")
    return value


def _decimal_column(precision: int, scale: int) -> _Column:
    """Return a column of decimals.

    Each number is checked. For a large exponent Arrow would crash the process, or return a wrong number.
    """
    return _Column(pa.decimal128(precision, scale), exact_decimal_converter(precision, scale))


def _float_of_32_bits(value: float) -> float:
    """Check that a number is not too large for 32 bits, and return it. Arrow would turn it into infinity.

    Raises: ValueError if it is too large.
    """
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
        raise ValueError(f"the UTC offset of {value} depends on the date, so it cannot be converted to UTC")
    return datetime.combine(date(2000, 1, 2), value).astimezone(UTC).time()


_CONVERSIONS: dict[type[Any], Callable[[Any], Any]] = {
    inspect.IntType: _whole_number,
    inspect.TimeType: time_in_utc,
    inspect.UUIDType: str,
}
_ANY_DECIMAL = _decimal_column(38, 18)
"""The column of a Decimal whose annotation names no digits. Spark uses the same digits for Python's Decimal."""
