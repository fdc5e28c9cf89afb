"""The Arrow columns of records: their metadata and their payload, built from whole batches.

Most functions here make columns from buffers. They avoid `pyarrow.array` and `pyarrow.scalar`, which import pandas where it is installed,
and the large module `pyarrow.compute`. Together these imports take 0.2 s of CPU in every Python process that Spark starts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain, groupby
from operator import is_, itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from recordpublisher.publishers.records import RecordBatch

from .record_fields import RECORD_FIELDS, RecordField

INSTANT = pa.timestamp("us", tz="UTC")
_ARROW_TYPES = {"STRING": pa.string(), "LONG": pa.int64(), "TIMESTAMP": INSTANT, "BINARY": pa.binary()}
_FIELDS = {field.name: field for field in RECORD_FIELDS}
RECORD_SCHEMA = pa.schema([(field.name, _ARROW_TYPES[field.spark_type]) for field in RECORD_FIELDS])
"""All columns of records. Spark compares the types of the first batch with its own schema, and accepts exactly these."""
_LONGEST_MS = 2**63 // 1000 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_columns(
    *batches: RecordBatch,
    schema: pa.Schema = RECORD_SCHEMA,
    joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview] | None = None,
) -> pa.RecordBatch:
    """Return several batches as one Arrow batch. Columns for five records cost as much as columns for a thousand.

    - `schema`: some of the columns of `RECORD_SCHEMA`. Instants may also be in ms.
    - `joined`: concatenates the payloads of all batches. If it is given, `pyarrow.array` is not called, because it would import pandas. If
      not, `pyarrow.array` makes the columns of text, three times as fast.
    """
    names = schema.names
    fields = [_FIELDS[name] for name in names]
    # Batches are taken one after the other, because the records of a batch stay in the CPU cache while all of its columns are taken.
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
    """Return a column of texts. None becomes null."""
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
    """Return a column in which each text is repeated for its number of rows.

    Neighbouring parts with the same text are merged first, because a part costs 3 us, and a row only 2 ns.
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
    """Return the same column as `instant_column` in a third of the time. It imports the large module `pyarrow.compute`."""
    try:
        return _number_array(pa.timestamp("ms", kind.tz), array("q", millis)).cast(kind)
    except (pa.ArrowInvalid, OverflowError):  # One of the times does not fit.
        return instant_column(millis, kind)


def datetime_column(values: Sequence[datetime | None]) -> pa.Array:
    """Return a column of instants from datetimes. It takes a quarter of the time of `pyarrow.array`.

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
