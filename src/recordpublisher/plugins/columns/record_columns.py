"""The Arrow columns of records: their metadata and their payload, built from whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import is_
from typing import Any

import pyarrow as pa

from recordpublisher.publishers.records import RecordBatch

from .column_buffers import (
    INSTANT,
    binary_column,
    cast_instants,
    instant_column,
    number_column,
    repeated_column,
    text_column,
)
from .record_fields import RECORD_FIELDS, RecordField

_ARROW_TYPES = {"STRING": pa.string(), "LONG": pa.int64(), "TIMESTAMP": INSTANT, "BINARY": pa.binary()}
_FIELDS = {field.name: field for field in RECORD_FIELDS}
RECORD_SCHEMA = pa.schema([(field.name, _ARROW_TYPES[field.spark_type]) for field in RECORD_FIELDS])
"""Spark compares the types of the first batch with its own schema, and accepts exactly these."""


def arrow_columns(
    *batches: RecordBatch,
    schema: pa.Schema = RECORD_SCHEMA,
    joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview] | None = None,
) -> pa.RecordBatch:
    """Return several batches as one Arrow batch with these columns.

    Batches are joined because columns for five records cost as much as columns for a thousand.

    - `schema`: some of the columns of `RECORD_SCHEMA`. Instants may also be in ms.
    - `joined`: concatenates the payloads of all batches. With it, nothing calls `pyarrow.array`, which takes a third of the time of
      our buffers for texts, but imports pandas.
    """
    names = schema.names
    fields = [_FIELDS[name] for name in names]
    # One batch after the other, because its records are in the CPU cache while all of its columns are taken.
    taken = [[field.taken(batch) for field in fields] for batch in batches]
    parts = dict(zip(names, zip(*taken, strict=True), strict=True))
    arrivals = parts.get("approximateArrivalTimestamp")
    if arrivals and "eventTime" in parts and all(map(is_, arrivals, parts["eventTime"])):
        del parts["eventTime"]  # the same lists: the same column
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
