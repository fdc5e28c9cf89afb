"""The table of types is what the code makes of each type; and a value of each goes through every format and back."""

import json
import re
import sqlite3
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import duckdb
import msgspec
import polars as pl
import protobuf_order
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from sqlalchemy.dialects import postgresql, sqlite

import recordpublisher as rp
from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.avro import type_of_avro_file
from recordpublisher.plugins.deserializers.row_types import parse_columns
from recordpublisher.plugins.sinks.sql.columns import columns_of_type

from fakes.memory_streams import PROPERTIES, install
from processes.command_line import ROOT

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


def written(cell):
    return re.findall("`([^`]+)`", cell)


def test_every_row_has_every_column():
    assert len(ROWS) == 19
    assert [len(row) for row in ROWS] == [9] * 19


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
        assert TypedColumns(type_of_avro_file(str(tmp_path / "a.avsc"))).fields == [field]
    types = {each.name: each.type for each in TypedColumns(protobuf_order.Order).fields}
    for name in set(written(row["Protobuf"])) & PROTOBUF.keys():
        assert types[PROTOBUF[name]] == field.type


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


ALL = {
    "BOOLEAN": (True, True),
    "TINYINT": (-128, -128),
    "SMALLINT": (32767, 32767),
    "INT": (-(2**31), -(2**31)),
    "BIGINT": (2**63 - 1, 2**63 - 1),
    "FLOAT": (0.5, 0.5),
    "DOUBLE": (1e300, 1e300),
    "DECIMAL(12, 2)": (1234567890.25, Decimal("1234567890.25")),
    "DECIMAL(38, 18)": ("12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    "STRING": ("tea", "tea"),
    "BINARY": ("AP8=", b"\x00\xff"),
    "DATE": ("2026-11-29", date(2026, 11, 29)),
    "TIMESTAMP": ("2026-11-29T01:02:03.000004+01:00", datetime(2026, 11, 29, 0, 2, 3, 4, UTC)),
    "UUID": (str(UUID(int=7)), str(UUID(int=7))),
    "ARRAY<INT>": ([1, None], [1, None]),
    "MAP<STRING, INT>": ({"k": 1}, [("k", 1)]),
    "STRUCT<b: INT>": ({"b": 1}, {"b": 1}),
}
SCHEMA = ", ".join(f"c{place} {name}" for place, name in enumerate(ALL))
NAMES = [f"c{place}" for place in range(len(ALL))]
VALUES = [value for _, value in ALL.values()]


async def job(monkeypatch, **given):
    payload = json.dumps({name: value for name, (value, _) in zip(NAMES, ALL.values(), strict=True)}).encode()
    install(monkeypatch, {"a": [payload, b"{}"]}, closed=True)
    given = {**PROPERTIES, "flink.deserializer.schema": SCHEMA, "flink.job.name": "job", **given}
    async with rp.DataFetcher(["orders"], given) as fetcher:
        await fetcher.run()


def rows_of(table):
    return [list(row.values()) for row in table.select(NAMES).to_pylist()]


async def test_every_type_goes_through_parquet_and_back(monkeypatch, tmp_path):
    lake = {"flink.sink": "parquet", "flink.sink.parquet.path": str(tmp_path / "lake")}
    await job(monkeypatch, **lake, **{"flink.state.uri": str(tmp_path / "state")})

    rows = duckdb.sql(f"SELECT {', '.join(NAMES)} FROM '{tmp_path}/lake/**/*.parquet' ORDER BY c0").fetchall()
    place = {name: place for place, name in enumerate(ALL)}
    shown = list(rows[0])
    shown[place["TIMESTAMP"]] = shown[place["TIMESTAMP"]].astimezone(UTC)
    shown[place["MAP<STRING, INT>"]] = list(shown[place["MAP<STRING, INT>"]].items())
    assert shown == VALUES
    assert rows[1] == (None,) * len(ALL)
    assert pl.read_parquet(f"{tmp_path}/lake/**/*.parquet")["c8"][0] == VALUES[8]


async def test_every_type_goes_through_delta_and_back(monkeypatch, tmp_path):
    await job(monkeypatch, **{"flink.sink": "delta", "flink.sink.delta.uri": str(tmp_path / "table")})

    table = DeltaTable(str(tmp_path / "table"))
    assert rows_of(table.to_pyarrow_table()) == [VALUES, [None] * len(ALL)]
    assert pl.read_delta(str(tmp_path / "table"))["c8"][0] == VALUES[8]


async def test_every_type_goes_through_iceberg_and_back(monkeypatch, tmp_path):
    from pyiceberg.catalog import load_catalog

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given |= {"flink.sink": "iceberg", "flink.sink.iceberg.table": "lake.all", "flink.state.uri": f"{tmp_path}/state"}
    await job(monkeypatch, **given)

    table = load_catalog("default", **catalog).load_table("lake.all").scan().to_arrow()
    assert rows_of(table) == [VALUES, [None] * len(ALL)]


async def test_every_type_goes_through_sqlite(monkeypatch, tmp_path):
    given = {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/a.db", "flink.sink.sql.table": "t"}
    await job(monkeypatch, **given)

    with sqlite3.connect(tmp_path / "a.db") as connection:
        first, second = connection.execute(f"SELECT {', '.join(NAMES)} FROM t ORDER BY c0 IS NULL").fetchall()
    connection.close()
    shown = [
        json.loads(value) if name[:3] in ("ARR", "MAP", "STR") and value[0] in "[{" else value
        for name, value in zip(ALL, first, strict=True)
    ]
    at = "2026-11-29 00:02:03.000004"
    assert shown == [
        1, -128, 32767, -(2**31), 2**63 - 1, 0.5, 1e300, "1234567890.25", ALL["DECIMAL(38, 18)"][0], "tea", b"\x00\xff",
        "2026-11-29", at, str(UUID(int=7)), [1, None], {"k": 1}, {"b": 1},
    ]  # fmt: skip
    assert second == (None,) * len(ALL)
