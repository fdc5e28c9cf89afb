"""`flink.deserializer.schema`: the same columns in every sink and in frames as for a class, and inferred columns."""

import datetime as dt
import io
import json
import re
import sqlite3
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter

import duckdb
import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.consumer.deserialization import PreparedDeserializer
from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.row_types import parse_columns
from recordpublisher.plugins.deserializers.schemas import (
    ConvertedValues,
    columns_text,
    merge_shapes,
    paths_without_column,
    schema_type,
    shape_of,
    with_missing_fields,
    with_valid_names,
)

from fakes.batches import batch
from fakes.memory_streams import PROPERTIES, install
from processes.command_line import ROOT

SCHEMA = "id BIGINT, amount DECIMAL(12, 2), at TIMESTAMP, address STRUCT<country: STRING>, tags ARRAY<STRING>"
GIVEN = {**PROPERTIES, "flink.job.name": "job", "flink.deserializer.schema": SCHEMA}
ORDER = {"id": 1, "amount": 9.50, "at": "2026-11-26T06:00:00Z", "address": {"country": "NO"}, "tags": ["a", "b"]}
AT = dt.datetime(2026, 11, 26, 6, tzinfo=dt.UTC)
ROW = {"id": 1, "amount": Decimal("9.50"), "at": AT, "address": {"country": "NO"}, "tags": ["a", "b"]}
FIELDS = list(ROW)
BAD = {**ORDER, "address": {"country": 7}}


@dataclass
class Address:
    country: str | None


@dataclass
class Order:
    id: int
    amount: Decimal
    at: dt.datetime
    address: Address
    tags: list[str]


async def job(monkeypatch, *orders, **more):
    payloads = [order if isinstance(order, bytes) else json.dumps(order).encode() for order in orders]
    install(monkeypatch, {"a": payloads}, closed=True)
    given = {**GIVEN, **{key.replace("_", "."): value for key, value in more.items()}}
    async with rp.DataFetcher(["orders"], {key: value for key, value in given.items() if value}) as fetcher:
        await fetcher.run()


async def parquet(monkeypatch, folder, *orders, **more):
    state = {"flink.state.uri": str(folder / "state")}
    await job(monkeypatch, *orders, flink_sink="parquet", flink_sink_parquet_path=str(folder / "lake"), **state, **more)
    names = ", ".join(f'"{name}"' for name in FIELDS)
    return duckdb.sql(f"SELECT {names} FROM '{folder}/lake/**/*.parquet' ORDER BY id").to_arrow_table().to_pylist()


async def delta(monkeypatch, folder, *orders, **more):
    await job(monkeypatch, *orders, flink_sink="delta", flink_sink_delta_uri=str(folder / "table"), **more)
    return DeltaTable(str(folder / "table")).to_pyarrow_table(columns=FIELDS).to_pylist()


async def iceberg(monkeypatch, folder, *orders, **more):
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given |= {"flink.sink": "iceberg", "flink.sink.iceberg.table": "lake.orders", "flink.state.uri": f"{folder}/state"}
    await job(monkeypatch, *orders, **given, **more)
    table = load_catalog("default", **catalog).load_table("lake.orders")
    return table.scan(selected_fields=tuple(FIELDS)).to_arrow().select(FIELDS).to_pylist()


async def jsonl(monkeypatch, folder, *orders, **more):
    state = {"flink.state.uri": str(folder / "state")}
    await job(monkeypatch, *orders, flink_sink="jsonl", flink_sink_jsonl_path=str(folder / "lines"), **state, **more)
    lines = [line for path in (folder / "lines").rglob("*.jsonl") for line in path.read_text().splitlines()]
    values = [json.loads(line)["value"] for line in lines]
    return [
        {**value, "amount": Decimal(value["amount"]), "at": dt.datetime.fromisoformat(value["at"])} for value in values
    ]


async def sqlite(monkeypatch, folder, *orders, **more):
    given = {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{folder}/a.db", "flink.sink.sql.table": "orders"}
    await job(monkeypatch, *orders, **given, **more)
    with sqlite3.connect(folder / "a.db") as connection:
        rows = connection.execute(f"SELECT {', '.join(FIELDS)} FROM orders").fetchall()
    connection.close()
    return [
        {
            "id": number,
            "amount": Decimal(amount),
            "at": dt.datetime.fromisoformat(at).replace(tzinfo=dt.UTC),
            "address": json.loads(address),
            "tags": json.loads(tags),
        }
        for number, amount, at, address, tags in rows
    ]


@pytest.fixture(params=[parquet, delta, iceberg, jsonl, sqlite])
def rows(request, monkeypatch, tmp_path):
    async def written(*orders, **more):
        return await request.param(monkeypatch, tmp_path, *orders, **more)

    return written


async def test_every_sink_has_the_fields_of_the_schema_with_their_types(rows):
    assert await rows(ORDER) == [ROW]


async def test_every_sink_refuses_what_does_not_fit_with_the_field_and_both_types(rows):
    with pytest.raises(rp.DeserializationError, match=r"\$.address.country: expected str \| null, got int"):
        await rows(ORDER, BAD)


async def test_every_sink_refuses_digits_that_the_column_does_not_have(rows):
    with pytest.raises(
        rp.DeserializationError, match=r"the field 'amount' is DECIMAL\(12, 2\), and 9.505 has too many digits"
    ):
        await rows({**ORDER, "amount": 9.505})


async def test_every_sink_goes_on_without_bad_records_if_that_is_wanted(rows):
    assert await rows(BAD, b"no JSON", ORDER, **{"flink.deserializer.error": "SKIP"}) == [ROW]


def test_a_frame_has_the_columns_of_the_schema(monkeypatch):
    install(monkeypatch, {"a": [json.dumps(ORDER).encode()]}, closed=True)

    frame = rp.read_arrow("orders", PROPERTIES, deserializer_schema=SCHEMA, metadata=False).read_all()

    assert frame.to_pylist() == [ROW]
    assert frame.schema.field("amount").type == pa.decimal128(12, 2)


@pytest.mark.parametrize("more", [{}, {"deserializer": "json"}])
@pytest.mark.parametrize("read", [rp.read_polars, rp.read_pandas])
def test_a_frame_in_memory_has_them_too_and_guesses_nothing(monkeypatch, read, more):
    install(monkeypatch, {"a": [json.dumps(ORDER).encode()]}, closed=True)

    frame = read("orders", PROPERTIES, deserializer_schema=SCHEMA, metadata=False, **more)

    assert list(frame.columns) == FIELDS
    assert list(frame["amount"]) == [Decimal("9.50")]


def test_a_schema_and_a_class_are_the_same_columns():
    of = schema_type(rp.Properties({"flink.deserializer.schema": SCHEMA.replace("DECIMAL(12, 2)", "DECIMAL(38, 18)")}))

    assert TypedColumns(of).fields == TypedColumns(Order).fields


async def test_a_file_is_a_schema_and_so_is_its_content(monkeypatch, tmp_path):
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}]
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    (tmp_path / "order.json").write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))

    for name, names in (("order.avsc", ["id", "item"]), ("order.json", ["id"])):
        for schema in (str(tmp_path / name), (tmp_path / name).read_text()):
            install(monkeypatch, {"a": [b'{"id": 1}']}, closed=True)
            given = {**PROPERTIES, "flink.deserializer.schema": schema}
            assert rp.read_arrow("orders", given, metadata=False).read_all().column_names == names


async def test_values_of_avro_become_rows_of_the_schema(monkeypatch):
    written = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, written, {"id": 7})
    install(monkeypatch, {"a": [payload.getvalue()]}, closed=True)
    given = {**PROPERTIES, "flink.deserializer": "avro", "flink.deserializer.avro.schema": json.dumps(written)}

    frame = rp.read_arrow("orders", given, deserializer_schema="id SMALLINT, item STRING", metadata=False).read_all()

    assert frame.to_pylist() == [{"id": 7, "item": None}]
    assert frame.schema.field("id").type == pa.int16()


@pytest.mark.parametrize("format_", ["bytes", "text", "protobuf", "json:loads"])
def test_a_schema_beside_values_of_another_type_is_refused(monkeypatch, format_):
    install(monkeypatch, {"a": []})
    with pytest.raises(
        rp.ConfigurationError, match=r"flink.deserializer.schema.*cannot be combined with 'flink.deserializer="
    ):
        rp.DataFetcher("orders", GIVEN, deserializer=format_, sink=rp.MemorySink())


def test_a_schema_beside_a_class_is_refused(monkeypatch):
    install(monkeypatch, {"a": []})
    with pytest.raises(
        rp.ConfigurationError, match="cannot be combined with 'deserializer': both give the type of the values"
    ):
        rp.DataFetcher("orders", GIVEN, deserializer=Order, sink=rp.MemorySink())


@pytest.mark.parametrize(
    ("schema", "reason"),
    [("id BIGINTT", "'BIGINTT' was found"), ("missing.avsc", "No such file"), ("missing.json", "No such file")],
)
def test_a_schema_that_cannot_be_read_is_refused_when_the_job_is_made(monkeypatch, schema, reason):
    install(monkeypatch, {"a": []})
    with pytest.raises(rp.ConfigurationError, match=reason):
        rp.DataFetcher("orders", {**PROPERTIES, "flink.deserializer.schema": schema}, sink=rp.MemorySink())


async def test_a_handler_gets_rows_with_attributes(monkeypatch):
    install(monkeypatch, {"a": [json.dumps(ORDER).encode()]}, closed=True)
    sink = rp.MemorySink()

    async with rp.DataFetcher(["orders"], GIVEN, sink=sink) as fetcher:
        await fetcher.run()

    assert sink.records[0].value.address.country == "NO"


async def test_the_properties_of_the_page_are_all_that_a_job_needs(monkeypatch, tmp_path):
    page = (ROOT / "docs/how-to/decode-records.md").read_text()
    (block,) = re.findall(r"```properties\n(flink.deserializer.schema.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, {"a": [json.dumps(ORDER).encode()]}, closed=True)

    given = dict(line.split(" = ") for line in block.splitlines())
    async with rp.DataFetcher(["orders"], {**PROPERTIES, **given}) as fetcher:
        await fetcher.run()

    assert duckdb.sql("SELECT amount, address.country FROM 'lake/**/*.parquet'").fetchall() == [(Decimal("9.50"), "NO")]


PARTITIONED = {"flink.sink.partitions": "country={address.country}/dt={at:%Y-%m-%d}"}


@pytest.mark.parametrize("sink", [parquet, delta, iceberg])
async def test_files_and_tables_are_partitioned_by_a_field_inside_an_object(monkeypatch, tmp_path, sink):
    orders = [{**ORDER, "id": number, "address": {"country": country}} for number, country in enumerate(["NO", "SE"])]

    found = await sink(monkeypatch, tmp_path, *orders, {**ORDER, "id": 2, "address": None}, **PARTITIONED)

    assert [(row["id"], row["address"]) for row in sorted(found, key=itemgetter("id"))] == [
        (0, {"country": "NO"}),
        (1, {"country": "SE"}),
        (2, None),
    ]
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


async def test_delta_has_the_field_as_a_partition_column_of_its_type(monkeypatch, tmp_path):
    await delta(monkeypatch, tmp_path, ORDER, **PARTITIONED)

    table = DeltaTable(str(tmp_path / "table"))
    assert table.metadata().partition_columns == ["country", "dt"]
    assert table.to_pyarrow_table(columns=["country", "dt"]).to_pylist() == [{"country": "NO", "dt": "2026-11-26"}]


async def test_iceberg_notes_the_partition_of_a_field_inside_an_object_and_skips_files_by_it(monkeypatch, tmp_path):
    orders = [{**ORDER, "id": number, "address": {"country": name}} for number, name in enumerate(["NO", "SE", None])]
    orders += [{**ORDER, "id": 3, "address": None}, {**ORDER, "id": 4, "address": {"country": "x" * 300}}]

    found = await iceberg(monkeypatch, tmp_path, *orders, **PARTITIONED)

    assert [row["address"] for row in sorted(found, key=itemgetter("id"))] == [row["address"] for row in orders]
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    table = load_catalog("default", **catalog).load_table("lake.orders")
    assert [field.name for field in table.spec().fields] == ["country", "at_day"]
    noted = [row["partition"]["country"] for row in table.inspect.files().to_pylist()]
    assert sorted(noted, key=str) == ["NO", None, "SE", "x" * 300]
    assert table.metadata.name_mapping() is not None
    plan = table.scan(row_filter="address.country == 'SE'")
    assert [len(list(plan.plan_files())), plan.to_arrow()["id"].to_pylist()] == [1, [1]]


INFER = {"flink.deserializer.schema": "INFER"}
GUESSED = {"id": 1, "price": 1.5, "address": {"country": "NO"}, "tags": ["a"]}


async def test_infer_needs_a_sink_and_one_property(monkeypatch, tmp_path):
    more = {"flink.sink": "delta", "flink.sink.delta.uri": str(tmp_path / "table")}
    await job(monkeypatch, GUESSED, {"id": 2, "item": "tea"}, **INFER, **more)

    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert {row["id"]: (row["price"], row["address"], row["tags"], row["item"]) for row in rows} == {
        1: (1.5, {"country": "NO"}, ["a"], None),
        2: (None, None, None, "tea"),
    }


def rows_of_iceberg(folder):
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return load_catalog("default", **catalog).load_table("lake.orders").scan().to_arrow().to_pylist()


def rows_of_folder(folder):
    return (
        duckdb.sql(f"FROM read_parquet('{folder}/lake/**/*.parquet', union_by_name=true)").to_arrow_table().to_pylist()
    )


def rows_of_delta(folder):
    return DeltaTable(str(folder / "table")).to_pyarrow_table().to_pylist()


@pytest.mark.parametrize(
    ("sink", "rows_of"),
    [("parquet", rows_of_folder), ("delta", rows_of_delta), ("iceberg", rows_of_iceberg)],
)
async def test_infer_partitions_an_empty_place_by_a_field_inside_an_object_at_the_first_try(
    monkeypatch, tmp_path, sink, rows_of
):
    given = {
        "parquet": {"flink.sink.parquet.path": f"{tmp_path}/lake"},
        "delta": {"flink.sink.delta.uri": f"{tmp_path}/table"},
    }
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    given["iceberg"] = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given["iceberg"]["flink.sink.iceberg.table"] = "lake.orders"
    state = {"flink.state.uri": f"{tmp_path}/state"} if sink == "iceberg" else {}
    more = {**INFER, **PARTITIONED, **state, "flink.sink": sink, **given[sink]}
    at = {"at": "2026-11-26T06:00:00Z"}
    orders = [
        {"id": 1, "address": {"country": 47}, **at},
        {"id": 2},
        {"id": 3, "address": {"country": 46, "code": "x"}},
    ]
    payloads = [json.dumps(order).encode() for order in orders]
    shards = {"a": [], "b": payloads[:2], "c": payloads[2:]}
    for count in (1, 2, 3):
        install(monkeypatch, dict(list(shards.items())[:count]), closed=True)
        async with rp.DataFetcher(["orders"], {**GIVEN, **more}) as fetcher:
            await fetcher.run()

    found = {row["id"]: row["address"] for row in rows_of(tmp_path)}
    assert found == {1: {"country": 47, "code": None}, 2: None, 3: {"country": 46, "code": "x"}}


async def test_infer_adds_columns_to_a_database(monkeypatch, tmp_path):
    given = {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/a.db", "flink.sink.sql.table": "orders"}
    await job(monkeypatch, GUESSED, {"id": 2, "item": "tea"}, **INFER, **given)

    with sqlite3.connect(tmp_path / "a.db") as connection:
        rows = connection.execute("SELECT id, price, address, tags, item FROM orders ORDER BY id").fetchall()
    connection.close()
    assert rows == [(1, 1.5, '{"country": "NO"}', '["a"]', None), (2, None, None, None, "tea")]


@pytest.mark.parametrize("sink", ["parquet", "jsonl"])
async def test_infer_takes_the_columns_of_a_folder_from_the_data(monkeypatch, tmp_path, sink):
    given = {"flink.sink": sink, f"flink.sink.{sink}.path": str(tmp_path / "lake"), "flink.state.uri": str(tmp_path)}
    await job(monkeypatch, GUESSED, {"id": 2, "item": "tea"}, **INFER, **given)

    of = {
        "parquet": f"FROM '{tmp_path}/lake/**/*.parquet'",
        "jsonl": f"FROM (SELECT unnest(value) FROM read_json('{tmp_path}/lake/**/*.jsonl'))",
    }
    found = duckdb.sql(f"SELECT id, price, address.country, tags, item {of[sink]} ORDER BY id").fetchall()
    assert found == [(1, 1.5, "NO", ["a"], None), (2, None, None, None, "tea")]


async def test_infer_refuses_what_is_no_object_as_a_bad_record(monkeypatch, tmp_path):
    with pytest.raises(
        rp.DeserializationError,
        match="the value is of the type list: it must be an object, because its fields become the columns",
    ):
        await job(monkeypatch, [1], **INFER, **{"flink.sink": "memory"})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"flink.deserializer": "avro", "flink.sink": "memory"}, "columns can only be inferred from JSON"),
        ({"flink.deserializer": "text", "flink.sink": "memory"}, "columns can only be inferred from JSON"),
    ],
)
async def test_infer_is_refused_where_no_column_could_follow(monkeypatch, tmp_path, more, reason):
    with pytest.raises(rp.ConfigurationError, match=reason):
        await job(monkeypatch, **INFER, **more, **{"flink.state.uri": str(tmp_path)})


FIRST = {"id": 1, "price": 1, "stream": "x", "address": {"country": "NO"}, "at": "2026-11-26T06:00:00Z"}
SEEN = [FIRST, {"id": 2, "price": 1.5, "large": 2**63}, {"id": 3, "address": {"code": 7}, "none": None, "empty": []}]


@pytest.mark.parametrize("read", [rp.read_arrow, rp.read_polars, rp.read_pandas])
def test_a_frame_has_the_columns_that_all_records_show(monkeypatch, read):
    install(monkeypatch, {"a": [json.dumps(each).encode() for each in SEEN]}, closed=True)

    found = read("orders", PROPERTIES, deserializer_schema="infer")
    frame = (
        found.read_all() if read is rp.read_arrow else found if read is rp.read_polars else pa.Table.from_pandas(found)
    )
    frame = frame if isinstance(frame, pa.Table) else frame.to_arrow()

    names = ["id", "price", "stream", "address", "at", "large"]
    assert frame.column_names[:7] == [*names, "shardId"]
    rows = sorted(frame.select(names).to_pylist(), key=itemgetter("id"))
    assert [row["address"] for row in rows] == [{"country": "NO", "code": None}, None, {"country": None, "code": 7}]
    assert [(row["price"], row["large"], row["stream"], row["at"]) for row in rows][:2] == [
        (1.0, None, "x", FIRST["at"]),
        (1.5, Decimal(2**63), None, None),
    ]


def test_a_frame_is_not_read_if_a_record_does_not_fit_unless_it_is_skipped(monkeypatch, caplog):
    def read(**more):
        install(monkeypatch, {"a": [b'{"id": 1}', b'{"id": "x"}', b"[1]", b'{"Id": 2}']}, closed=True)
        return rp.read_polars("orders", PROPERTIES, deserializer_schema="INFER", metadata=False, **more)

    with pytest.raises(rp.DeserializationError, match="it must be an object, because its fields become the columns"):
        read()
    assert read(deserializer_error="SKIP").rows() == [(1,)]
    reasons = [message.partition("was skipped: ")[2] for message in caplog.messages if "recordpublisher" not in message]
    assert [reason for reason in reasons if reason] == [
        "ValueError: it is not a valid row of the schema: $.id: expected int | null, got str",
        "ValueError: the field 'Id' cannot be a column: its name is not valid, or differs from another name in case only; name the columns "
        "in flink.deserializer.schema",
    ]


def test_a_frame_that_does_not_fit_names_the_record_and_the_field(monkeypatch):
    install(monkeypatch, {"a": [b'{"id": 1}', b'{"id": "x"}']}, closed=True)

    with pytest.raises(rp.DeserializationError, match=r"\$.id: expected int \| null, got str"):
        rp.read_arrow("orders", PROPERTIES, deserializer_schema="INFER")


def test_columns_of_an_inferred_frame_are_chosen_by_name(monkeypatch):
    def read(*payloads, **more):
        install(monkeypatch, {"a": [*payloads]}, closed=True)
        return rp.read_arrow("orders", PROPERTIES, deserializer_schema="INFER", **more).read_all()

    assert read(b'{"a": 1, "b": 2}', columns=["b", "shardId"]).to_pylist() == [{"b": 2, "shardId": "a"}]
    assert read(columns=["b"]).schema == pa.schema([("b", pa.null())])
    assert read(b"{}", metadata=False).num_rows == 1
    with pytest.raises(rp.ConfigurationError, match="'columns' is 'c'"):
        read(b'{"a": 1}', columns=["c"])


async def test_dead_letters_have_no_schema_and_any_sink_takes_them_beside_infer(monkeypatch, tmp_path):
    letters = {"flink.deserializer.error": "DEAD_LETTER", "flink.deadletter.sink": "parquet"}
    letters |= {"flink.deadletter.parquet.path": str(tmp_path / "letters"), "flink.state.uri": str(tmp_path / "state")}
    more = {"flink.sink": "delta", "flink.sink.delta.uri": str(tmp_path / "table")}
    await job(monkeypatch, GUESSED, {"id": "x"}, [1], **INFER, **letters, **more)

    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["id"].to_pylist() == [1]
    found = duckdb.sql(f"SELECT value FROM '{tmp_path}/letters/**/*.parquet'").fetchall()
    reasons = sorted(json.loads(value)["error"] for (value,) in found)
    assert ["expected int | null, got str" in reasons[0], "the value is of the type list" in reasons[1]] == [
        True,
        True,
    ], reasons


async def test_a_deserializer_that_must_wait_is_waited_for_and_its_values_are_rows():
    class Slow:
        decompressor = None
        prepared = False

        async def prepare(self, batch):
            self.prepared = True

        def values(self, batch):
            return [{"id": 1, "more": self.prepared}]

    of = schema_type(rp.Properties(deserializer_schema="id BIGINT, more BOOLEAN"))
    values = ConvertedValues(Slow(), of)

    await values.prepare(batch(b"x"))

    assert values.values(batch(b"x")) == [of(id=1, more=True)]
    assert isinstance(values, PreparedDeserializer)


@pytest.mark.parametrize("sink", [parquet, delta, iceberg, sqlite])  # JSON lines have it as it came
async def test_a_time_without_a_zone_is_in_utc(monkeypatch, tmp_path, sink):
    assert await sink(monkeypatch, tmp_path, {**ORDER, "at": "2026-11-26T06:00:00"}) == [ROW]


def columns_of(*values, there=None):
    seen = {}
    for value in values:
        seen = merge_shapes(seen, shape_of(value))
    there = there or {}
    return columns_text(with_missing_fields(there, with_valid_names(seen, there)))


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([True], "a BOOLEAN"),
        ([1], "a BIGINT"),
        ([2**63 - 1, -(2**63)], "a BIGINT"),
        ([1, 2**63], "a DECIMAL(38, 0)"),
        ([1.5], "a DOUBLE"),
        ([1, 1.5], "a DOUBLE"),
        ([1.5, 2**70, 1], "a DOUBLE"),
        (["2026-11-26T06:00:00Z"], "a STRING"),
        ([None], ""),
        ([None, 1, None], "a BIGINT"),
        ([[]], ""),
        ([[None]], ""),
        ([[], [1], [None]], "a ARRAY<BIGINT>"),
        ([[1, 1.5]], "a ARRAY<DOUBLE>"),
        ([[{"b": 1}, {"c": "x"}]], "a ARRAY<STRUCT<b: BIGINT, c: STRING>>"),
        ([{}], ""),
        ([{"b": None}], ""),
        ([{"b": 1}, {"c": {"d": True}}], "a STRUCT<b: BIGINT, c: STRUCT<d: BOOLEAN>>"),
        ([1, "x"], "a BIGINT"),
        (["x", 1], "a STRING"),
        ([True, 1], "a BOOLEAN"),
        ([{"b": 1}, 7], "a STRUCT<b: BIGINT>"),
        ([[], 1], "a BIGINT"),
        ([{}, [None], {"b": None}, [1]], "a ARRAY<BIGINT>"),
        ([[[], 1.5]], "a ARRAY<DOUBLE>"),
    ],
)
def test_values_of_one_field_have_one_column(values, columns):
    assert columns_of(*({"a": value} for value in values)) == columns


def test_no_type_of_a_table_is_changed_and_what_it_lacks_is_added_inside_objects_and_lists_too():
    there = {"a": "INT", "b": {"c": "DATE"}, "d": [{"e": "STRING"}], "m": ("STRING", "INT")}
    seen = {"a": 1.5, "b": {"c": 1, "x": True}, "d": [{"y": 1}], "m": {"k": "text"}, "n": 1}

    assert columns_of(seen, there=there) == (
        "a INT, b STRUCT<c: DATE, x: BOOLEAN>, d ARRAY<STRUCT<e: STRING, y: BIGINT>>, m MAP<STRING, INT>, n BIGINT"
    )


def test_names_that_differ_in_case_only_or_are_none_get_no_column():
    seen = {"Id": 1, "id": 2, "": 3, "a\0": 4, "b`": 5, "c d": 6, "e": {"F": 1, "f": 2}, "g": [{"": 1, "h": 1}]}

    assert columns_of(seen) == "Id BIGINT, `c d` BIGINT, e STRUCT<F: BIGINT>, g ARRAY<STRUCT<h: BIGINT>>"
    assert columns_of({"ID": 1}, there={"id": "BIGINT"}) == "id BIGINT"


def test_values_without_a_column_are_found_by_their_path():
    there = {"a": "BIGINT", "b": {"c": "DATE"}, "d": [{"e": "STRING"}], "m": ("STRING", "INT")}

    assert (
        list(paths_without_column(shape_of({"a": "x", "b": {"c": 1}, "d": [], "m": {"k": 1}, "n": None}), there)) == []
    )
    assert list(paths_without_column(shape_of({"b": {"x": 1}, "d": [{"y": 1}], "n": {"z": 1}}), there)) == [
        "b.x",
        "d[].y",
        "n.z",
    ]


def test_objects_in_a_map_of_a_table_grow_together():
    there = {"m": ("STRING", {"a": "INT"})}
    seen = {"m": {"K": {"a": 1, "b": "x"}, "k": {"a": 1}}}

    assert list(paths_without_column(shape_of(seen), there)) == ["m.K.b"]
    assert columns_of(seen, there=there) == "m MAP<STRING, STRUCT<a: INT, b: STRING>>"


def test_what_is_printed_can_be_pinned():
    text = columns_of({"a b": [{"c": {"d": 2**70}}], "e": 1.5})

    assert text == "`a b` ARRAY<STRUCT<c: STRUCT<d: DECIMAL(38, 0)>>>, e DOUBLE"
    parse_columns(text)


def test_a_value_that_is_nested_too_deep_is_refused():
    value = 1
    for _ in range(40):
        value = {"a": value}

    with pytest.raises(ValueError, match="nested more than 32 levels deep"):
        shape_of(value)
