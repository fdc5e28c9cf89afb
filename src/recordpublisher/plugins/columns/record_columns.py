"""The Arrow columns of records: their metadata and their payload, built from whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, is_
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

DATA = "data"
RECORD_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("approximateArrivalTimestamp", INSTANT),
        ("eventTime", INSTANT),
        (DATA, pa.binary()),
    ]
)
"""Spark compares the types of the first batch with its own schema, and accepts exactly these."""


def arrow_columns(
    *batches: RecordBatch,
    schema: pa.Schema = RECORD_SCHEMA,
    joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview] | None = None,
) -> pa.RecordBatch:
    """Several batches as one Arrow batch with these columns: making columns costs the same for five records as for a thousand.

    `schema`: some of the columns of `RECORD_SCHEMA`; instants may be of ms.
    `joined` puts the payloads of all batches one after the other; then nothing calls `pyarrow.array`, which takes a third of the time of
    our buffers for texts, but imports pandas.
    """
    names = schema.names
    # batch by batch: its records are in the CPU cache while all of its columns are taken
    taken = [[_TAKEN[name](batch) for name in names] for batch in batches]
    parts = dict(zip(names, zip(*taken, strict=True), strict=True))
    arrivals = parts.get("approximateArrivalTimestamp")
    if arrivals and "eventTime" in parts and all(map(is_, arrivals, parts["eventTime"])):
        del parts["eventTime"]  # the same lists: the same column
    columns = {}
    for name, values in parts.items():
        kind = schema.field(name).type
        if name in _OF_ARROW and joined is None:
            columns[name] = pa.array(_together(values), kind)
        elif name in _INSTANTS and joined is None:
            columns[name] = cast_instants(_together(values), kind)
        else:
            columns[name] = binary_column(values, joined) if joined and name == DATA else _MADE[name](values, kind)
    columns.setdefault("eventTime", columns.get("approximateArrivalTimestamp"))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)


def _joined(make: Callable[[Any], pa.Array]) -> Callable[[Sequence[Any], pa.DataType], pa.Array]:
    """Makes one array of the lists of all batches."""
    return lambda parts, _: make(_together(parts))


def _together(parts: Sequence[Any]) -> Sequence[Any]:
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))


_TAKEN: dict[str, Callable[[RecordBatch], Any]] = {
    "stream": lambda batch: (batch.stream, len(batch)),
    "shardId": lambda batch: (batch.shard_id, len(batch)),
    "partitionKey": attrgetter("partition_keys"),
    "explicitHashKey": attrgetter("explicit_hash_keys"),
    "sequenceNumber": attrgetter("sequence_numbers"),
    "subSequenceNumber": attrgetter("sub_sequence_numbers"),
    "approximateArrivalTimestamp": attrgetter("arrival_millis"),
    "eventTime": attrgetter("event_time_column"),
    DATA: attrgetter("data"),
}
_OF_ARROW = {"partitionKey", "explicitHashKey", "sequenceNumber", DATA}
_INSTANTS = {"approximateArrivalTimestamp", "eventTime"}
_MADE: dict[str, Callable[[Sequence[Any], pa.DataType], pa.Array]] = {
    "stream": lambda parts, _: repeated_column(parts),
    "shardId": lambda parts, _: repeated_column(parts),
    "partitionKey": _joined(text_column),
    "explicitHashKey": _joined(text_column),
    "sequenceNumber": _joined(text_column),
    "subSequenceNumber": _joined(number_column),
    "approximateArrivalTimestamp": lambda parts, kind: instant_column(_together(parts), kind),
    "eventTime": lambda parts, kind: instant_column(_together(parts), kind),
}
