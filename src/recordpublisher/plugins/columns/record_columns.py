"""The Arrow columns of records: their metadata and their payload, built from whole batches.

Most functions here make columns from buffers. They avoid `pyarrow.array` and `pyarrow.scalar`, which import pandas where it is installed,
and the large module `pyarrow.compute`. Together these imports take 0.2 s of CPU in every Python process that Spark starts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from functools import cache
from itertools import accumulate, chain, groupby
from math import isfinite
from operator import attrgetter, is_, itemgetter
from types import NoneType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from msgspec import inspect

from recordpublisher.consumer.deserialization import (
    Deserializer,
    PreparedDeserializer,
    TypedField,
    column_type,
    constants_of,
    decimal_digits,
    exact_decimal_converter,
    fields_of,
    has_fields,
    name_of,
    without_none,
)
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.records import RecordBatch

from .record_fields import DATA, RECORD_FIELDS, RecordField

INSTANT = pa.timestamp("us", tz="UTC")
_ARROW_TYPES = {"STRING": pa.string(), "LONG": pa.int64(), "TIMESTAMP": INSTANT, "BINARY": pa.binary()}
_FIELDS = {field.name: field for field in RECORD_FIELDS}
RECORD_SCHEMA = pa.schema([(field.name, _ARROW_TYPES[field.spark_type]) for field in RECORD_FIELDS])
"""Spark compares the types of the first batch with its own schema, and accepts exactly these."""
_LONGEST_MS = 2**63 // 1000 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_columns(
    *batches: RecordBatch,
    schema: pa.Schema = RECORD_SCHEMA,
    joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview] | None = None,
) -> pa.RecordBatch:
    """Return several batches as one Arrow batch with these columns.

    Batches are joined because columns for five records cost as much as columns for a thousand.

    - `schema`: some of the columns of `RECORD_SCHEMA`. Instants may also be in ms.
    - `joined`: concatenates the payloads of all batches. With it, nothing calls `pyarrow.array`, which makes columns of text three times as
      fast, but imports pandas.
    """
    names = schema.names
    fields = [_FIELDS[name] for name in names]
    # One batch after the other, because its records are in the CPU cache while all of its columns are taken.
    taken = [[field.taken(batch) for field in fields] for batch in batches]
    parts = dict(zip(names, zip(*taken, strict=True), strict=True))
    arrivals = parts.get("approximateArrivalTimestamp")
    if arrivals and "eventTime" in parts and all(map(is_, arrivals, parts["eventTime"])):
        del parts["eventTime"]  # Both fields have the same lists, so one column serves for both.
    columns = {name: _column(_FIELDS[name], values, schema.field(name).type, joined) for name, values in parts.items()}
    columns.setdefault("eventTime", columns.get("approximateArrivalTimestamp"))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)


def _column(
    field: RecordField,
    parts: Sequence[Any],
    kind: pa.DataType,
    joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview] | None,
) -> pa.Array:
    """Return one array with the values of all batches."""
    if field.is_shared:
        return repeated_column(parts)
    if field.spark_type == "BINARY" and joined is not None:
        return binary_column(parts, joined)
    values = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
    if field.spark_type == "LONG":
        return number_column(values)
    if field.spark_type == "TIMESTAMP":
        return instant_column(values, kind) if joined is not None else cast_instants(values, kind)
    return text_column(values) if joined is not None else pa.array(values, kind)


def binary_column(
    parts: Sequence[Sequence[bytes]], joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview]
) -> pa.Array:
    """Return a column with the values of all parts, none of which is null. `joined` concatenates the bytes of the parts."""
    lengths = map(len, chain.from_iterable(parts))
    return _byte_array(pa.binary(), joined(parts), lengths, sum(map(len, parts)))


def text_column(values: Sequence[str | None]) -> pa.Array:
    """Return a column of texts, in which None is null."""
    try:
        text = "".join(values)  # type: ignore[arg-type]  # Most columns have no nulls.
    except TypeError:
        if values.count(None) == len(values):
            return pa.nulls(len(values), pa.string())
        raw = [b"" if value is None else value.encode() for value in values]
        validity = _validity(value is not None for value in values)
        return _byte_array(pa.string(), b"".join(raw), map(len, raw), len(raw), validity)
    content = text.encode()
    if len(content) == len(text):  # Each character has one byte.
        return _byte_array(pa.string(), content, map(len, values), len(values))  # type: ignore[arg-type]
    return _byte_array(pa.string(), content, [len(value.encode()) for value in values], len(values))  # type: ignore[union-attr]


def repeated_column(parts: Iterable[tuple[str, int]]) -> pa.Array:
    """Return a column with each text repeated by its number of rows.

    Neighbouring parts with the same text are merged first, because a part costs 3 us, and a row of it 2 ns.
    """
    runs = [(text, sum(rows for _, rows in run)) for text, run in groupby(parts, key=itemgetter(0))]
    return pa.concat_arrays([pa.repeat(text_column([text])[0], rows) for text, rows in runs])


def number_column(values: Sequence[int]) -> pa.Array:
    """Return a column of 64-bit integers."""
    return _number_array(pa.int64(), array("q", values))


def instant_column(millis: Sequence[int], kind: pa.DataType = INSTANT) -> pa.Array:
    """Return a column of instants from epoch ms: in microseconds, as Spark needs them, or in ms if `kind` says so.

    A time beyond the year 290,000 does not fit into microseconds, and becomes null.
    """
    if kind.unit == "ms":
        return _number_array(kind, array("q", millis))
    try:
        return _number_array(INSTANT, array("q", [ms * 1000 for ms in millis]))
    except OverflowError:
        fits = [-_LONGEST_MS <= ms <= _LONGEST_MS for ms in millis]
        whole = array("q", [ms * 1000 if is_fit else 0 for ms, is_fit in zip(millis, fits, strict=True)])
        return _number_array(INSTANT, whole, _validity(fits))


def cast_instants(millis: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return the column of `instant_column`, in a third of the time. The cast imports `pyarrow.compute`."""
    try:
        return _number_array(pa.timestamp("ms", kind.tz), array("q", millis)).cast(kind)
    except (pa.ArrowInvalid, OverflowError):  # One of the times does not fit.
        return instant_column(millis, kind)


def datetime_column(values: Sequence[datetime | None]) -> pa.Array:
    """Return a column of instants from datetimes, in a quarter of the time of `pyarrow.array`, which asks each datetime for its offset.

    Raises: the error of `pyarrow.array` if a value does not fit.
    """
    try:
        if {datetime, NoneType}.issuperset(map(type, values)):
            return pa.array([value and value - _EPOCH for value in values], pa.duration("us")).view(INSTANT)
    except TypeError:  # One of the datetimes has no time zone, which pyarrow takes as UTC.
        pass
    return pa.array(values, INSTANT)


def _number_array(kind: pa.DataType, numbers: array[int], validity: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def _byte_array(
    kind: pa.DataType, content: bytes | memoryview, lengths: Iterable[int], rows: int, validity: pa.Buffer | None = None
) -> pa.Array:
    offsets = array("i", list(accumulate(lengths, initial=0)))
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(content)])


def _validity(flags: Iterable[bool]) -> pa.Buffer:
    """Return Arrow's validity bitmap: one bit a row, with the first row in the lowest bit."""
    bits = "".join(["1" if flag else "0" for flag in flags])
    return pa.py_buffer(int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little"))


# The Arrow columns of typed values: one column for each field, then the metadata of the records.

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


def to_arrow(*batches: RecordBatch, into: Any = None) -> pa.RecordBatch:
    """Return the records of batches as one `pyarrow.RecordBatch`: the fields of typed values and the metadata, or the columns of Spark.

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
                raise ConfigurationError("into", None, "the type of all values", reason=f"the values are of {names}")
    return frame_columns(into).batch(*batches)


@cache
def frame_columns(of: Any = None) -> FrameColumns:
    """Return the columns of a type, which are made once and kept. Raises: ConfigurationError if a field has no Arrow type."""
    return FrameColumns(of)


class FrameColumns:
    """The columns of a type's fields, then the metadata; without a type, the columns of `RECORD_SCHEMA`.

    If a field has the name of a metadata column, the field replaces that column.
    """

    def __init__(self, of: Any = None) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError, which names the field, if a field has no Arrow type."""
        self._typed = None if of is None else TypedColumns(of)
        fields = [] if self._typed is None else self._typed.fields
        # The fields replace the payload that they come from, and metadata of the same names.
        hidden = {DATA, *(field.name for field in fields)} if fields else ()
        self.metadata = pa.schema([field for field in RECORD_SCHEMA if field.name not in hidden])
        self.schema = pa.schema([*fields, *self.metadata])

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """Return several batches as one.

        Raises: DeserializationError, which names the record and the field, if a value does not fit its column.
        """
        metadata = arrow_columns(*batches, schema=self.metadata)
        if self._typed is None:
            return metadata
        return pa.RecordBatch.from_arrays([*self.of_fields(*batches), *metadata.columns], schema=self.schema)

    def of_fields(self, *batches: RecordBatch) -> list[pa.Array]:
        """Return the columns of the fields alone, in the order of `schema`.

        Raises: DeserializationError, which names the record and the field, if a value does not fit its column.
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
        """Check that values fit the columns. Raises: ValueError, which names the field, if a value does not fit."""
        if self._typed is not None:
            self._typed.arrays(values)

    @staticmethod
    def _check_each(typed: TypedColumns, batch: RecordBatch) -> None:
        for value, number in zip(batch.values, batch.sequence_numbers, strict=True):
            try:
                typed.arrays([value])
            except ValueError as error:
                raise DeserializationError(batch.stream, batch.shard_id, number, str(error)) from error


class ChecksColumns(Protocol):
    """Columns that know which values fit them."""

    def check(self, values: Sequence[Any]) -> None:
        """Check that values fit the columns. Raises: ValueError or TypeError if a value does not fit."""


class CheckedValues:
    """A deserialiser that checks that values fit into the columns. Records with other values are bad (`flink.deserializer.error`)."""

    def __init__(self, values: Deserializer[Any], columns: ChecksColumns) -> None:
        self._values, self._columns = values, columns
        self.decompressor = getattr(values, "decompressor", None)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the values of the wrapped deserialiser. Raises: ValueError if one does not fit into its column."""
        values = self._values.values(batch)
        self._columns.check(batch.data if values is None else values)
        return values

    async def prepare(self, batch: RecordBatch) -> None:
        """Let the wrapped deserialiser prepare for the batch."""
        if isinstance(self._values, PreparedDeserializer):
            await self._values.prepare(batch)


class TypedColumns:
    """The columns of values of one type, without metadata. `fields` describes them."""

    def __init__(self, of: Any) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError, which names the field, if a field has no Arrow type."""
        self._name, info = name_of(of), inspect.type_info(of)
        fields = fields_of(info) or [TypedField(VALUE, info, _as_it_is)]
        self._columns = [(field, self._column(field.type, f"$.{field.name}", (of,))) for field in fields]
        self.fields = [pa.field(field.name, column.type) for field, column in self._columns]

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return an array for each field. Raises: ValueError, which names the field, if a value does not fit its column."""
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
            return _Column(pa.list_(item.type), item.convert_all)
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


class _Column(NamedTuple):
    """An Arrow type, and the function that converts a value that is not None into one that Arrow accepts for the type."""

    type: pa.DataType
    convert: Callable[[Any], Any]

    def convert_all(self, values: Iterable[Any]) -> list[Any]:
        """Return the values as Arrow accepts them. None stays None."""
        if self.convert is _as_it_is:
            return list(values)
        return [None if value is None else self.convert(value) for value in values]


def _pairs(key: _Column, item: _Column, entries: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(zip(key.convert_all(entries), item.convert_all(entries.values()), strict=True))


def _as_it_is(value: Any) -> Any:
    return value


def _decimal_column(precision: int, scale: int) -> _Column:
    """Return a column of decimals.

    Its function checks each number, because for a large exponent Arrow crashes the process, or returns a wrong number.
    """
    return _Column(pa.decimal128(precision, scale), exact_decimal_converter(precision, scale))


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
        raise ValueError(f"the UTC offset of {value} depends on the date, so it cannot be converted to UTC")
    return datetime.combine(date(2000, 1, 2), value).astimezone(UTC).time()


_CONVERSIONS: dict[type[Any], Callable[[Any], Any]] = {inspect.TimeType: time_in_utc, inspect.UUIDType: str}
_ANY_DECIMAL = _decimal_column(38, 18)
"""The column of a Decimal without digits of its own: Spark uses the same digits for a Decimal of Python."""
