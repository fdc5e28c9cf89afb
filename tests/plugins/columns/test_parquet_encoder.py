"""Row groups of a Parquet file: written by the budget of memory, sorted, with or without statistics."""

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.parquet_encoder import ParquetEncoder, ParquetOptions

SCHEMA = pa.schema([("n", pa.int64()), ("data", pa.binary())])


def rows(*numbers):
    return pa.record_batch([pa.array(numbers, pa.int64()), [os.urandom(100) for _ in numbers]], schema=SCHEMA)


def written(*parts, **options):
    target = io.BytesIO()
    encoder = ParquetEncoder(lambda: target, SCHEMA, ParquetOptions(**options))
    held = []
    for part in parts:
        encoder.write(part)
        held.append(encoder.held_bytes)
    footer = encoder.close()
    return pq.ParquetFile(io.BytesIO(target.getvalue())), footer, held


def test_a_row_group_is_written_when_it_has_its_bytes_and_then_holds_none():
    file, footer, held = written(*(rows(n, n, n) for n in range(5)), row_group_bytes=600)

    assert held == [held[0], 0, held[0], 0, held[0]]
    assert [file.metadata.row_group(number).num_rows for number in range(3)] == [6, 6, 3]
    assert footer.num_rows == 15
    assert file.read()["n"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_a_row_group_is_sorted_and_says_so():
    file, _, _ = written(rows(3, 1), rows(2), sorted_by=("n",))

    assert file.read()["n"].to_pylist() == [1, 2, 3]
    assert [column.column_index for column in file.metadata.row_group(0).sorting_columns] == [0]


def test_statistics_are_written_except_for_bytes():
    file, _, _ = written(rows(1, 5))
    assert file.metadata.row_group(0).column(0).is_stats_set
    assert not file.metadata.row_group(0).column(1).is_stats_set


def test_fields_inside_objects_lists_and_maps_have_statistics_and_a_dictionary_too():
    place = pa.struct([("country", pa.string()), ("raw", pa.binary())])
    of = {"address": place, "stops": pa.list_(place), "names": pa.map_(pa.string(), place)}
    schema, values = pa.schema(of), {"country": "NO", "raw": b"x"}
    row = {"address": values, "stops": [values], "names": [("a", values)]}
    target = io.BytesIO()
    encoder = ParquetEncoder(lambda: target, schema, ParquetOptions())
    encoder.write(pa.RecordBatch.from_pylist([row] * 3, schema))
    footer = encoder.close()

    columns = [footer.row_group(0).column(index) for index in range(footer.num_columns)]
    assert len(columns) == 7
    assert [column.path_in_schema for column in columns if not column.has_dictionary_page] == []
    texts = [column for column in columns if not column.path_in_schema.endswith("raw")]
    assert [column.statistics.min for column in texts] == ["NO", "NO", "a", "NO"]
    assert [column.is_stats_set for column in columns if column not in texts] == [False] * 3


def test_the_properties_say_how_files_are_written():
    given = {"flink.sink.parquet.compression": "zstd", "flink.sink.parquet.row.group.bytes": "1mb"}
    more = {"flink.sink.parquet.sort": "n, data"}
    assert ParquetOptions.of(rp.Properties(given | more)) == ParquetOptions("ZSTD", 2**20, ("n", "data"))
    assert ParquetOptions.of(rp.Properties({})) == ParquetOptions()

    file, _, _ = written(rows(1), compression="ZSTD")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_column_that_is_not_there_cannot_sort():
    ParquetOptions(sorted_by=("n",)).check(SCHEMA)
    with pytest.raises(
        rp.ConfigurationError,
        match=r"'m': the files have no such column, or it is nested. Valid: some of the columns n, data",
    ):
        ParquetOptions(sorted_by=("m",)).check(SCHEMA)
