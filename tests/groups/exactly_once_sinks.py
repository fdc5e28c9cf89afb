"""Sinks that keep positions with their rows, for groups: their properties, and what they have written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from groups.stores import STORES
from groups.worker_group import files_of_job
from servers.postgresql import serve_postgresql

TABLE = "CREATE TABLE written (shard_id text, sequence_number text)"
"""Without a key: what is written twice is there twice."""
ROWS = "SELECT shard_id, sequence_number FROM written"
Rows = list[tuple[str, str]]


class Target(NamedTuple):
    """The properties of the sink and of the group's store, and what reads shard and sequence number of each row."""

    properties: dict[str, object]
    rows: Callable[[], Rows]


@contextmanager
def sql_on_sqlite(folder: Path) -> Iterator[Target]:
    path = folder / "rows.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(TABLE)

    def rows() -> Rows:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            return database.execute(ROWS).fetchall()

    yield Target(_sql(f"sqlite:///{path}") | {"flink.state.uri": f"sqlite:///{folder}/group.db"}, rows)


@contextmanager
def sql_on_postgresql(folder: Path) -> Iterator[Target]:
    with serve_postgresql() as uri:
        place = uri.replace("+psycopg", "")
        with psycopg.connect(place) as connection:
            connection.execute(TABLE)

        def rows() -> Rows:
            with psycopg.connect(place) as connection:
                return connection.execute(ROWS).fetchall()

        yield Target(_sql(uri) | {"flink.state.uri": uri}, rows)


@contextmanager
def sql_beside_dynamodb(folder: Path) -> Iterator[Target]:
    """Rows and positions in PostgreSQL, leases in DynamoDB Local."""
    with sql_on_postgresql(folder) as target, STORES["dynamodb"](folder) as store:
        yield target._replace(properties={**target.properties, **store})


@contextmanager
def jsonl(folder: Path) -> Iterator[Target]:
    out = folder / "out"

    def rows() -> Rows:
        lines = [json.loads(line) for file in files_of_job(out, ".jsonl") for line in file.read_text().splitlines()]
        return [(line["shardId"], line["sequenceNumber"]) for line in lines]

    yield Target({"flink.sink": "jsonl", "flink.sink.jsonl.path": str(out), "flink.state.uri": f"{folder}/group"}, rows)


@contextmanager
def parquet(folder: Path) -> Iterator[Target]:
    out = folder / "out"

    def rows() -> Rows:
        tables = [pq.ParquetFile(file).read(["shardId", "sequenceNumber"]) for file in files_of_job(out, ".parquet")]
        return [(row["shardId"], row["sequenceNumber"]) for table in tables for row in table.to_pylist()]

    given = {"flink.sink": "parquet", "flink.sink.parquet.path": str(out), "flink.state.uri": f"{folder}/group"}
    yield Target(given, rows)


@contextmanager
def delta(folder: Path) -> Iterator[Target]:
    place = str(folder / "out")

    def rows() -> Rows:
        return _of_table(DeltaTable(place).to_pyarrow_table(columns=["shardId", "sequenceNumber"]))

    given = {"flink.sink": "delta", "flink.sink.delta.uri": place, "flink.state.uri": f"{folder}/group"}
    yield Target(given, rows)


@contextmanager
def iceberg(folder: Path) -> Iterator[Target]:
    place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    def rows() -> Rows:
        table = load_catalog("default", **place).load_table("lake.orders")
        return _of_table(table.scan(selected_fields=("shardId", "sequenceNumber")).to_arrow())

    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in place.items()}
    given |= {"flink.sink": "iceberg", "flink.sink.iceberg.table": "lake.orders", "flink.state.uri": f"{folder}/group"}
    yield Target(given, rows)


def _of_table(table: Any) -> Rows:
    return [(row["shardId"], row["sequenceNumber"]) for row in table.to_pylist()]


def _sql(uri: str) -> dict[str, Any]:
    return {"flink.sink": "sql", "flink.sink.sql.uri": uri, "flink.sink.sql.table": "written"}


LEASES_ELSEWHERE = "postgresql, leases in dynamodb"
SINKS = {
    "sqlite": sql_on_sqlite,
    "postgresql": sql_on_postgresql,
    "jsonl": jsonl,
    "parquet": parquet,
    "delta": delta,
    "iceberg": iceberg,
    LEASES_ELSEWHERE: sql_beside_dynamodb,
}
