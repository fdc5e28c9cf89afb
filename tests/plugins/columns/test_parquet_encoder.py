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


@pytest.mark.parametrize("has_statistics", [True, False])
def test_statistics_are_written_unless_they_are_off(has_statistics):
    file, _, _ = written(rows(1, 5), has_statistics=has_statistics)
    assert file.metadata.row_group(0).column(0).is_stats_set is has_statistics
    assert not file.metadata.row_group(0).column(1).is_stats_set  # of bytes never


def test_the_properties_say_how_files_are_written():
    given = {"flink.sink.parquet.compression": "zstd", "flink.sink.parquet.row.group.bytes": "1mb"}
    more = {"flink.sink.parquet.statistics": "false", "flink.sink.parquet.sort": "n, data"}
    assert ParquetOptions.of(rp.Properties(given | more)) == ParquetOptions("ZSTD", 2**20, False, ("n", "data"))
    assert ParquetOptions.of(rp.Properties({})) == ParquetOptions()

    file, _, _ = written(rows(1), compression="ZSTD")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_column_that_is_not_there_cannot_sort():
    ParquetOptions(sorted_by=("n",)).check(SCHEMA)
    with pytest.raises(rp.ConfigurationError, match=r"'m'. Valid: some of the columns n, data"):
        ParquetOptions(sorted_by=("m",)).check(SCHEMA)
