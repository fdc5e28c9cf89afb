"""The table of types is what the code makes of each type; and a value of each goes through every format and back."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import duckdb
import msgspec
import polars as pl
import protobuf_order
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from every_type import SOURCES, catalog_of, plain, write
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from sqlalchemy.dialects import postgresql, sqlite

import recordpublisher as rp
from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.avro import avro_file_text, type_of_avro_schema
from recordpublisher.plugins.deserializers.row_types import parse_columns
from recordpublisher.plugins.sinks.sql.column_types import columns_of_type
from recordpublisher.plugins.spark.row_columns import spark_schema

from processes.command_line import ROOT
from servers.postgresql import serve_postgresql

HEAD, *LINES = re.findall(r"^\| (.*) \|$", (ROOT / "docs/reference/types.md").read_text(), re.MULTILINE)
ROWS = [dict(zip(HEAD.split(" | "), line.split(" | "), strict=True)) for line in LINES]
PYTHON = {of.__name__: of for of in (bool, int, float, Decimal, str, bytes, date, datetime, time, timedelta, UUID)}
AVRO = {
    "decimal(12, 2)": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "enum": {"type": "enum", "name": "E", "symbols": ["A"]},
    "fixed": {"type": "fixed", "name": "F", "size": 2},
    "date": {"type": "int", "logicalType": "date"},
    "time-millis": {"type": "int", "logicalType": "time-millis"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "array<int>": {"type": "array", "items": "int"},
    "map<int>": {"type": "map", "values": "int"},
    "record<b: int>": {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]},
} | {name: {"type": "long", "logicalType": name} for name in ("timestamp-millis", "timestamp-micros", "time-micros")}
PROTOBUF = {"uint64": "id", "double": "price", "bytes": "raw", "enum": "kind", "bool": "paid"}
PROTOBUF |= {"google.protobuf.Timestamp": "at", "google.protobuf.Duration": "took"}


@pytest.fixture(scope="module")
def server():
    with serve_postgresql() as uri:
        yield uri


def written(cell):
    return re.findall("`([^`]+)`", cell)


def test_every_row_has_every_column():
    assert len(ROWS) == 19
    assert [len(row) for row in ROWS] == [10] * 19


def type_of(row):
    if names := written(row["schema"]):
        return parse_columns(f"a {names[0]}")
    return msgspec.defstruct("Row", [("a", PYTHON[written(row["Python"])[0]])])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["Arrow, Parquet"])
def test_a_row_of_the_table_is_what_the_code_makes(row, tmp_path):
    of = type_of(row)
    (field,) = TypedColumns(of).fields
    column = columns_of_type(of)["a"]

    assert written(row["Arrow, Parquet"]) == [str(field.type)]
    assert written(row["Spark"]) == of_spark(row)
    assert written(row["Delta Lake"]) == of_delta(field)
    assert written(row["Iceberg"]) == of_iceberg(field)
    assert written(row["PostgreSQL"]) == [column.compile(dialect=postgresql.dialect())]
    assert written(row["SQLite"]) == [column.compile(dialect=sqlite.dialect())]
    for name in written(row["Python"]):
        made = msgspec.defstruct("Row", [("a", PYTHON[name])])
        assert (TypedColumns(made).fields, str(columns_of_type(made)["a"])) == ([field], str(column))
    for name in written(row["Avro"]):
        record = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": AVRO.get(name, name)}]}
        (tmp_path / "a.avsc").write_text(json.dumps(record))
        assert TypedColumns(type_of_avro_schema(json.loads(avro_file_text(str(tmp_path / "a.avsc"))))).fields == [field]
    types = {each.name: each.type for each in TypedColumns(protobuf_order.Order).fields}
    for name in set(written(row["Protobuf"])) & PROTOBUF.keys():
        assert types[PROTOBUF[name]] == field.type


def of_spark(row):
    """The type of Spark's source, which has columns of a schema only."""
    schemas = [rp.Properties(deserializer_schema=f"a {name}") for name in written(row["schema"])]
    if row["schema"] == "`TIME`":
        with pytest.raises(rp.ConfigurationError, match="Spark cannot read"):
            spark_schema(*schemas)
        return []
    return [spark_schema(given)["a"].dataType.simpleString() for given in schemas]


def of_delta(field):
    try:
        schema = json.loads(Schema.from_arrow(pa.schema([field])).to_json())
    except Exception:
        return []
    return [in_words(schema["fields"][0]["type"])]


def in_words(kind):
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{in_words(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{in_words(kind['keyType'])},{in_words(kind['valueType'])}>"
    return f"struct<{','.join(field['name'] + ':' + in_words(field['type']) for field in kind['fields'])}>"


def of_iceberg(field):
    try:
        (made,) = _pyarrow_to_schema_without_ids(pa.schema([field])).fields
    except Exception:
        return []
    return [re.sub(r"-1: (\w+): optional ", r"\1: ", str(made.field_type))]


def by_duckdb(folder, names):
    return duckdb.sql(f"SELECT {names} FROM '{folder}/every/**/*.parquet'").fetchall()


def by_polars(folder, names):
    return pl.read_parquet(f"{folder}/every/**/*.parquet").select(names.split(", ")).rows()


def delta_by_deltalake(folder, names):
    table = DeltaTable(str(folder / "every")).to_pyarrow_table(columns=names.split(", "))
    return [tuple(row.values()) for row in table.to_pylist()]


def delta_by_duckdb(folder, names):
    every = duckdb.from_arrow(DeltaTable(str(folder / "every")).to_pyarrow_dataset())
    return every.select(names).fetchall()


def delta_by_polars(folder, names):
    return pl.read_delta(str(folder / "every")).select(names.split(", ")).rows()


def iceberg_scan(folder):
    return load_catalog("default", **catalog_of(folder)).load_table("lake.every").scan()


def iceberg_by_pyiceberg(folder, names):
    rows = iceberg_scan(folder).to_arrow().select(names.split(", ")).to_pylist()
    return [tuple(row.values()) for row in rows]


def iceberg_by_duckdb(folder, names):
    return iceberg_scan(folder).to_duckdb("every").sql(f"SELECT {names} FROM every").fetchall()


def iceberg_by_polars(folder, names):
    table = load_catalog("default", **catalog_of(folder)).load_table("lake.every")
    return pl.scan_iceberg(table).select(names.split(", ")).collect().rows()


def sqlite_rows(folder, names):
    with closing(sqlite3.connect(folder / "every.db")) as connection:
        return connection.execute(f"SELECT {names} FROM every").fetchall()


def lines(folder, names):
    found = [json.loads(line) for path in (folder / "every").rglob("*.jsonl") for line in path.read_text().splitlines()]
    return [[line["value"].get(name) for name in names.split(", ")] for line in found]


READERS = {
    "parquet": [by_duckdb, by_polars],
    "delta": [delta_by_deltalake, delta_by_duckdb, delta_by_polars],
    "iceberg": [iceberg_by_pyiceberg, iceberg_by_duckdb, iceberg_by_polars],
    "sqlite": [sqlite_rows],
    "jsonl": [lines],
}


def assert_rows(values, rows):
    """One row has the values, the other one has none; a message of Protobuf has what is not set."""
    assert len(rows) == 2
    shown = [dict(zip(values, map(plain, row, values.values()), strict=True)) for row in rows]
    differing = [{name: row[name] for name in values if row[name] != values[name]} for row in shown]
    assert {} in differing, min(differing, key=len)
    assert [row for row in shown if row != values and set(row.values() if "m0" not in row else [None]) == {None}]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("sink", READERS)
async def test_every_type_goes_through_files_and_tables_and_back(monkeypatch, tmp_path, kind, sink):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    values = await write(monkeypatch, kind, sink, tmp_path)

    for read in READERS[sink]:
        assert_rows(values, read(tmp_path, ", ".join(values)))


@pytest.mark.parametrize("kind", SOURCES)
async def test_every_type_goes_through_postgresql_and_back(monkeypatch, tmp_path, server, kind):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS every, recordpublisher_commits")
        values = await write(monkeypatch, kind, "postgresql", tmp_path, server)
        assert_rows(values, connection.execute(f"SELECT {', '.join(values)} FROM every").fetchall())
