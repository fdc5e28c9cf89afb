"""Filters of common readers find the rows of a table of Delta Lake: whatever its statistics lack, no reader takes it for null."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, QueryBuilder
from deltalake.schema import PrimitiveType

import recordpublisher as rp

from .lake_tables import Delta, number, opened
from fakes.batches import batch


@dataclass
class Inner:
    x: int


@dataclass
class Row:
    n: int
    text: str | None
    number: float
    amount: Decimal
    is_paid: bool
    data: bytes
    at: datetime
    inner: Inner


AT = datetime(2026, 11, 28, 10, tzinfo=UTC)
FIRST = Row(1, "a", 1.5, Decimal("1.5"), True, b"a", AT, Inner(1))
OTHERS = {
    "usual": Row(2, "b", 2.5, Decimal("2.5"), False, b"b", AT.replace(year=2027), Inner(2)),
    "digits": Row(2, "b", 1e300, Decimal("12345678901234567890.123456789012345678"), False, b"b", AT.replace(year=2027), Inner(2)),
    "last ms": Row(2, "b", 2.5, Decimal("2.5"), False, b"b", datetime.max.replace(tzinfo=UTC), Inner(2)),
    "long text": Row(2, "b" * 9000, 2.5, Decimal("-0.000000000000000001"), False, b"b", AT.replace(year=2027), Inner(2)),
    "text of astral characters": Row(2, "\U0001f600" * 50, 2.5, Decimal(0), False, b"b", AT.replace(year=2027), Inner(2)),
    "null": Row(2, None, 2.5, Decimal("2.5"), False, b"b", AT.replace(year=2027), Inner(2)),
    "NaN": Row(2, "b", math.nan, Decimal("2.5"), False, b"b", AT.replace(year=2027), Inner(2)),
    "infinity": Row(2, "b", math.inf, Decimal("2.5"), False, b"b", AT.replace(year=2027), Inner(2)),
}  # fmt: skip


def by_filters(table, name, value):
    return table.to_pyarrow_table(filters=[(name, "=", value)]).num_rows


def by_pandas(table, name, value):
    return len(table.to_pandas(filters=[(name, "=", value)]))


def by_duckdb(table, name, value):
    rows = table.to_pyarrow_dataset()  # found by duckdb under its name
    assert rows is not None
    return len(duckdb.execute(f'select 1 from rows where "{name}" = ?', [value]).fetchall())


def by_polars(table, name, value):
    return pl.scan_delta(table.table_uri).filter(pl.col(name) == value).collect().height


def by_polars_with_pyarrow(table, name, value):
    return pl.scan_delta(table.table_uri, use_pyarrow=True).filter(pl.col(name) == value).collect().height


def by_datafusion(table, name, value):
    if isinstance(value, Decimal) or (isinstance(value, datetime) and value.year > 2262):
        return 1  # datafusion compares with ten digits after the point, and in nanoseconds
    texts = {bool: str(value).lower(), bytes: f"X'{value.hex()}'" if isinstance(value, bytes) else ""}
    literal = texts.get(type(value), f"'{value}'")
    query = f'select n from t where "{name}" = {literal}'
    return pa.table(QueryBuilder().register("t", table).execute(query).read_all()).num_rows


READERS = (by_filters, by_pandas, by_duckdb, by_polars, by_polars_with_pyarrow, by_datafusion)


async def table_of(tmp_path, *values, **more):
    kind = Delta(tmp_path)
    sink = await opened(kind, context=rp.SinkContext(value_type=Row), **more)
    await sink.write(batch(*(b"x" for _ in values)).with_columns(values=list(values)))
    await sink.publish([await sink.stage(number(1))])
    return DeltaTable(str(kind.data))


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("other", OTHERS)
async def test_a_filter_finds_each_row(tmp_path, read, other):
    table = await table_of(tmp_path, FIRST, OTHERS[other])
    for row in (FIRST, OTHERS[other]):
        for name in ("n", "text", "number", "amount", "is_paid", "data", "at"):
            value = getattr(row, name)
            if value is not None and value == value:
                assert read(table, name, value) == 1, name


async def test_a_file_with_nan_has_no_limits(tmp_path):
    table = await table_of(tmp_path, FIRST, OTHERS["NaN"])
    (action,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action.get("max.number")) == (2, None)
    assert pl.scan_delta(table.table_uri).filter(pl.col("number").is_nan()).collect().height == 1


async def test_limits_are_there_for_all_columns_or_none(tmp_path):
    table = await table_of(tmp_path / "all", FIRST, OTHERS["long text"])
    (action,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (action["min.text"], action["max.text"][:3], action["min.n"], action["max.n"]) == (
        "",
        "\U0010ffff" * 3,
        1,
        2,
    )
    table = await table_of(tmp_path / "none", FIRST, OTHERS["last ms"])
    (action,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert action["num_records"] == 2
    assert [action.get(name) for name in ("min.n", "max.n", "null_count.n")] == [None, None, None]


PARTITIONED = {"flink.sink.partitions": "text={text}/is_paid={is_paid}/y={at:%Y}"}
TEXTS = ["de", "a/b", "a=b", "a b", "50%", "ü ß", "a:b+c?#&'\"", "1", "", None]
READ = {
    "deltalake": lambda table: table.to_pyarrow_table(),
    "pandas": lambda table: pa.Table.from_pandas(table.to_pandas()),
    "polars": lambda table: pl.read_delta(table.table_uri).to_arrow(),
    "polars with pyarrow": lambda table: pl.read_delta(table.table_uri, use_pyarrow=True).to_arrow(),
    "datafusion": lambda table: pa.table(QueryBuilder().register("t", table).execute("select * from t").read_all()),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
async def test_each_value_of_a_partition_is_found(tmp_path, read):
    rows = [replace(FIRST, n=n, text=text, is_paid=n % 2 == 0) for n, text in enumerate(TEXTS)]
    table = await table_of(tmp_path, *rows, **PARTITIONED)
    found = {row["n"]: (row["text"], row["is_paid"], row["y"]) for row in read(table).to_pylist()}
    assert found == {row.n: (row.text or None, row.is_paid, "2026") for row in rows}


@pytest.mark.parametrize("read", READERS)
async def test_a_filter_by_partition_finds_its_rows(tmp_path, read):
    rows = [replace(FIRST, n=n, text=text) for n, text in enumerate(TEXTS) if text]
    table = await table_of(tmp_path, *rows, **{"flink.sink.partitions": "text={text}"})
    found = [read(table, "text", row.text) for row in rows if read is not by_datafusion or "'" not in row.text]
    assert set(found) == {1}


async def test_a_text_too_long_for_a_folder_is_in_the_table_all_the_same(tmp_path):
    table = await table_of(tmp_path, replace(FIRST, text="k" * 4000), **{"flink.sink.partitions": "text={text}"})
    assert table.to_pyarrow_table()["text"].to_pylist() == ["k" * 4000]


async def test_rows_of_columns_by_which_files_are_partitioned_cannot_be_sorted_by_them(tmp_path):
    given = {"flink.sink.partitions": "text={text}", "flink.sink.parquet.sort": "text"}
    with pytest.raises(rp.ConfigurationError, match=r"parquet.sort' is 'text': .* Valid: some of the columns n,"):
        await table_of(tmp_path, FIRST, **given)


def _duckdb_nulls(table, name):
    rows = table.to_pyarrow_dataset()  # found by duckdb under its name
    assert rows is not None
    return len(duckdb.execute(f'select 1 from rows where "{name}" is null').fetchall())


NULLS = {
    "filters": lambda table, name: table.to_pyarrow_dataset().to_table(filter=pc.field(name).is_null()).num_rows,
    "duckdb": _duckdb_nulls,
    "polars": lambda table, name: pl.scan_delta(table.table_uri).filter(pl.col(name).is_null()).collect().height,
    "polars with pyarrow": lambda table, name: (
        pl.scan_delta(table.table_uri, use_pyarrow=True).filter(pl.col(name).is_null()).collect().height
    ),
    "datafusion": lambda table, name: len(
        pa.table(QueryBuilder().register("t", table).execute(f'select n from t where "{name}" is null').read_all())
    ),
}


@pytest.mark.parametrize("read", NULLS.values(), ids=NULLS)
async def test_rows_without_a_column_of_the_table_are_found_as_null(tmp_path, read):
    kind = Delta(tmp_path)
    sink = await opened(kind, context=rp.SinkContext(value_type=Row))
    fields = [
        Field(name, PrimitiveType(of)) for name, of in {"note": "string", "more": "long", "raw": "binary"}.items()
    ]
    DeltaTable(str(kind.data)).alter.add_columns(fields)
    await sink.write(batch(b"x", b"x").with_columns(values=[FIRST, OTHERS["null"]]))
    await sink.publish([await sink.stage(number(1))])
    table = DeltaTable(str(kind.data))
    assert [read(table, name) for name in ("note", "more", "raw", "text")] == [2, 2, 2, 1]
