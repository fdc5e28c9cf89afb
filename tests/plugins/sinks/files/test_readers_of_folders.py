"""Common readers open a partitioned folder of the parquet sink, and find each value of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import recordpublisher as rp

from fakes.batches import batch


@dataclass
class Row:
    n: int
    text: str | None = None
    day: date | None = None
    number: int | None = None
    is_paid: bool | None = None


TEXTS = ["de", "a/b", "a=b", "a b", "50%", "ü ß", "a:b+c?#&'\"", "1"]
ROWS = [Row(n, text) for n, text in enumerate(TEXTS)]
DAYS = [date(2026, 11, 28), date(1, 1, 1)]


async def folder_of(tmp_path, pattern, rows):
    sink = rp.ParquetSink(
        rp.Properties({"flink.sink.parquet.path": str(tmp_path / "rows"), "flink.sink.partitions": pattern})
    )
    await sink.open(rp.SinkContext(value_type=Row))
    await sink.write(batch(*(b"x" for _ in rows)).with_columns(values=rows))
    await sink.flush()
    return str(tmp_path / "rows")


def by_pyarrow(folder, name):
    return rows_of(pq.read_table(folder), name)


def by_pyarrow_with_types(folder, name):
    """As the page says."""
    types = pa.schema(
        [(name, {"text": pa.string(), "day": pa.date32(), "number": pa.int64(), "is_paid": pa.string()}[name])]
    )
    return rows_of(ds.dataset(folder, partitioning=ds.partitioning(types, flavor="hive")).to_table(), name)


def by_pandas(folder, name):
    return rows_of(pa.Table.from_pandas(pd.read_parquet(folder)), name)


def by_polars(folder, name):
    return rows_of(pl.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True), name)


def by_duckdb(folder, name):
    return dict(
        duckdb.sql(
            f"select n, {name} from read_parquet('{folder}/*=*/**/*.parquet', hive_partitioning=true)"
        ).fetchall()
    )


def rows_of(table, name):
    columns = table.to_pydict() if isinstance(table, pa.Table) else table.to_dict(as_series=False)
    return dict(zip(columns["n"], columns[name], strict=True))


READERS = [by_pyarrow, by_pyarrow_with_types, by_pandas, by_polars, by_duckdb]


@pytest.mark.parametrize("read", READERS)
async def test_each_text_is_found(tmp_path, read):
    folder = await folder_of(tmp_path, "text={text}", ROWS)
    assert read(folder, "text") == dict(enumerate(TEXTS))


@pytest.mark.parametrize("read", [by_pyarrow, by_pyarrow_with_types, by_polars, by_duckdb])
async def test_no_value_and_an_empty_text_are_null(tmp_path, read):
    folder = await folder_of(tmp_path, "text={text}", [Row(0, "de"), Row(1, None), Row(2, "")])
    assert read(folder, "text") == {0: "de", 1: None, 2: None}


@pytest.mark.parametrize("read", [by_pyarrow_with_types, by_polars, by_duckdb])
async def test_dates_and_numbers_have_their_types(tmp_path, read):
    rows = [Row(n, day=day, number=n * 2**40) for n, day in enumerate(DAYS)]
    for name in ("day", "number"):
        folder = await folder_of(tmp_path / name, f"{name}={{{name}}}", rows)
        assert read(folder, name) == {row.n: getattr(row, name) for row in rows}


async def test_booleans_are_written_as_by_spark(tmp_path):
    folder = await folder_of(tmp_path, "is_paid={is_paid}", [Row(0, is_paid=True), Row(1, is_paid=False)])
    assert by_polars(folder, "is_paid") == {0: True, 1: False}
    assert by_pyarrow_with_types(folder, "is_paid") == {0: "true", 1: "false"}


async def test_files_cannot_be_sorted_by_a_column_of_partitions(tmp_path):
    given = {
        "flink.sink.parquet.path": str(tmp_path),
        "flink.sink.partitions": "text={text}",
        "flink.sink.parquet.sort": "text",
    }
    with pytest.raises(rp.ConfigurationError, match=r"sort' is 'text': .* Valid: some of the columns n, day"):
        await rp.ParquetSink(rp.Properties(given)).open(rp.SinkContext(value_type=Row))
