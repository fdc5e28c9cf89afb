"""Rows that can become records; the others are refused, where the job goes on without them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from recordpublisher.plugins.sinks.kinesis.failures import REFUSED, FailedRecord

from .columns import WriteColumns, data_of
from .rejected_rows import Refuse
from .row_ids import IdField


def usable(
    rows: pa.RecordBatch, columns: WriteColumns, stream: str | None, field: IdField | None, refuse: Refuse
) -> pa.RecordBatch:
    """The rows that have data and a target, and can hold their id; `stream` is the target where no column names it."""
    objections = {
        **_nulls(rows, columns.stream, "stream"),
        **({} if field is None else _without_room(rows, columns, field)),
        **_nulls(rows, columns.data, "data"),
    }
    if not objections:
        return rows
    for row, objection in sorted(objections.items()):
        target = stream if columns.stream is None else _text(rows, columns.stream, row)
        key = _text(rows, columns.partition_key, row) or ""
        hash_key = _text(rows, columns.explicit_hash_key, row)
        data = data_of(rows.slice(row, 1).column(columns.data))[0] or b""
        refuse(target or "null", FailedRecord(data, key, hash_key, REFUSED, objection))
    return rows.filter(pa.array([row not in objections for row in range(rows.num_rows)]))


def _nulls(rows: pa.RecordBatch, place: int | None, name: str) -> dict[int, str]:
    if place is None or not rows.column(place).null_count:
        return {}
    missing = rows.column(place).is_null().to_pylist()
    return {row: f"the row has no {name} (null)" for row, is_missing in enumerate(missing) if is_missing}


def _without_room(rows: pa.RecordBatch, columns: WriteColumns, field: IdField) -> dict[int, str]:
    objections = (
        (row, field.objection_to(data)) for row, data in enumerate(data_of(rows.column(columns.data))) if data
    )
    return {row: objection for row, objection in objections if objection is not None}


def _text(rows: pa.RecordBatch, place: int | None, row: int) -> Any:
    return None if place is None else rows.column(place)[row].as_py()
