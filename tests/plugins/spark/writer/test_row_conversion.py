"""Rows are converted to records, column by column."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from recordpublisher.plugins.spark.rows_to_records import (
    SLICE_BYTES,
    SLICE_ROWS,
    IdField,
    RowIds,
    RowsToRecords,
    WriteColumns,
    slices_of_batch,
)
from recordpublisher.publishers.errors import SinkError


def batch(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


def records(rows, columns, stream="out", ids=None, field=None):
    return RowsToRecords(columns, stream, ids, field).records_of(rows)


def test_records_have_the_data_keys_and_hash_keys_of_the_rows():
    rows = batch(data=[b"1", b""], key=["a", "ключ"], hash=[None, "17"])
    made = records(rows, WriteColumns(0, 1, 2))["out"]
    assert [(one.data, one.partition_key, one.explicit_hash_key, one.size) for one in made] == [
        (b"1", "a", None, 2),
        (b"", "ключ", "17", 8),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_is_utf_8(kind):
    given = ["ü"] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else ["ü".encode()]
    assert records(batch(data=pa.array(given, kind)), WriteColumns(0))["out"][0].data == "ü".encode()


def test_rows_without_a_key_are_spread():
    rows = batch(data=[b"x"] * 1000, key=["k", *[None] * 999])
    keys = [one.partition_key for one in records(rows, WriteColumns(0, 1))["out"]]
    assert keys[0] == "k"
    assert len(set(keys)) == 1000
    assert len({one.partition_key for one in records(rows, WriteColumns(0))["out"]}) == 1000


def test_a_column_names_the_target_of_each_row():
    rows = batch(data=[b"1", b"2", b"3"], to=["a", "b", "a"])
    made = records(rows, WriteColumns(0, stream=1), None)
    assert {stream: [one.data for one in some] for stream, some in made.items()} == {"a": [b"1", b"3"], "b": [b"2"]}


def test_ids_are_inserted_into_the_data_and_are_the_key_of_rows_without_one():
    rows = batch(data=['{"n": 1}', '{"n": 1}'], key=["k", None])
    first, second = records(rows, WriteColumns(0, 1), ids=RowIds("s"), field=IdField("id"))["out"]
    assert first.partition_key == "k"
    assert second.partition_key == json.loads(second.data)["id"]
    assert first.size == len(first.data) + 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (batch(data=[b"x", None], key=["a", "row-7"], to=["s", "s"]), r"no data \(null\).*'key': 'row-7'"),
        (batch(data=[b"x", b"y"], key=["a", "b"], to=["s", None]), r"no stream \(null\).*'key': 'b'"),
    ],
)
def test_a_row_without_data_or_target_is_named(rows, words):
    with pytest.raises(SinkError, match=words):
        records(rows, WriteColumns(0, 1, stream=2), None)


def test_large_batches_are_sliced():
    small = batch(data=[b"x"] * (2 * SLICE_ROWS + 1))
    assert [part.num_rows for part in slices_of_batch(small)] == [SLICE_ROWS, SLICE_ROWS, 1]
    large = batch(data=[bytes(2**20)] * 20)
    assert all(part.nbytes <= SLICE_BYTES for part in slices_of_batch(large))
    assert sum(part.num_rows for part in slices_of_batch(large)) == 20
    assert [part.num_rows for part in slices_of_batch(batch(data=[bytes(SLICE_BYTES + 1)] * 2))] == [1, 1]
