"""`flink.deserializer.schema = INFER`: tables whose columns follow from the data of JSON objects."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.plugins.deserializers.schemas import InferColumns, InferredJson

from .lake_tables import Delta, Iceberg, data_files, number, opened
from fakes.batches import batch
from random_inputs import inputs

INFER = {"flink.deserializer.schema": "INFER"}
METADATA = ["stream", "shardId", "partitionKey", "explicitHashKey", "sequenceNumber", "subSequenceNumber"]
TIMES = ["approximateArrivalTimestamp", "eventTime"]


@pytest.fixture(params=[Delta, Iceberg])
def kind(request, tmp_path):
    return request.param(tmp_path)


class Job:
    """A sink that gets JSON, and the reasons of what it rejects."""

    def __init__(self, kind, life="job.0.1"):
        self.kind, self.life, self.reasons = kind, life, []
        self.n = 0

    async def open(self, **more):
        async def reject(records, reason):
            self.reasons.append(reason)

        context = rp.SinkContext(value_type=InferColumns, reject=reject)
        self.sink = await opened(self.kind, self.life, context, **INFER, **more)
        return self

    async def write(self, *values):
        payloads = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        records = batch(*payloads).with_columns(event_times=[0 for _ in values])
        await self.sink.write(records.with_columns(values=InferredJson().values(records)))

    async def commit(self, *values):
        await self.write(*values)
        self.n += 1
        staged = await self.sink.stage(number(self.n))
        if staged is not None:
            await self.sink.publish([staged])


async def job(kind, n=1, **more):
    made = await Job(kind, f"job.0.{n}").open(**more)
    made.n = 10 * n
    return made


def fields(kind, *names):
    return sorted(tuple(row[name] for name in names) for row in kind.rows())


def columns(kind):
    return kind.sink(**INFER)._table.columns()


async def test_each_change_of_the_columns_is_told_once(kind, caplog):
    caplog.set_level("INFO", "recordpublisher.columns")
    first = await job(kind)
    await first.commit({"id": 1, "address": {"country": "NO"}})
    await first.commit({"id": 2, "paid": True, "address": {"country": "SE", "code": 7}})
    await first.commit({"id": 3, "paid": True})
    await first.sink.close()

    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "id BIGINT, address STRUCT<country: STRING>",
        "address STRUCT<country: STRING, code: BIGINT>, paid BOOLEAN",
    ]


async def test_columns_come_from_the_data_and_new_fields_add_nullable_ones(kind):
    first = await job(kind)
    await first.commit({"id": 1, "price": 1.5, "address": {"country": "NO"}, "tags": ["a"]})
    await first.commit({"id": 2, "paid": True, "address": {"country": "SE", "code": 7}})
    await first.sink.close()

    rows = sorted(kind.rows(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [1, 2]
    assert [row["address"] for row in rows] == [{"country": "NO", "code": None}, {"country": "SE", "code": 7}]
    assert [(row["price"], row["paid"], row["tags"]) for row in rows] == [(1.5, None, ["a"]), (None, True, None)]
    assert set(rows[0]) == {*METADATA, *TIMES, "id", "price", "address", "tags", "paid"}
    assert first.reasons == []


async def test_a_new_field_in_the_middle_of_a_commit_is_in_the_rows_that_have_it(kind):
    made = await job(kind)
    await made.write({"id": 1})
    await made.sink._write_waiting()
    await made.commit({"id": 2, "item": "tea"})
    await made.sink.close()

    assert sorted((row["id"], row["item"] or "") for row in kind.rows()) == [(1, ""), (2, "tea")]


async def test_a_value_of_another_type_is_a_bad_record_that_names_the_field_and_both_types(kind):
    made = await job(kind)
    await made.commit({"id": 1, "at": {"hour": 1}})
    await made.commit({"id": "x"}, {"id": 2}, {"id": 2.5}, {"id": 2**63}, {"at": {"hour": "one"}}, {"at": [1]})
    await made.sink.close()

    assert [row["id"] for row in sorted(kind.rows(), key=lambda row: row["id"])] == [1, 2]
    expected = "ValueError: it is not a valid row of the schema: "
    assert made.reasons == [
        f"{expected}$.id: expected int | null, got str",
        f"{expected}$.id: expected int | null, got float",
        f"{expected}$.id: expected int <= 9223372036854775807",
        f"{expected}$.at.hour: expected int | null, got str",
        f"{expected}$.at: expected object | null, got array",
    ]


async def test_a_restart_keeps_the_types_of_the_table_whatever_comes_first(kind):
    first = await job(kind)
    await first.commit({"x": 1.5, "large": 2**64, "n": 1})
    await first.sink.close()
    before = columns(kind)

    second = await job(kind, 2)
    await second.commit({"x": 1, "large": 1, "n": 2})
    await second.sink.close()

    assert columns(kind) == before
    assert sorted((row["n"], row["x"], row["large"]) for row in kind.rows()) == [
        (1, 1.5, Decimal(2**64)),
        (2, 1.0, Decimal(1)),
    ]
    assert second.reasons == []


async def test_nulls_and_what_is_empty_have_no_column_until_a_value_shows_its_type(kind):
    made = await job(kind)
    await made.commit({"id": 1, "a": None, "b": [], "c": {}, "d": {"e": None}, "f": [None]}, {})
    assert set(columns(kind).names) == {*METADATA, *TIMES, "id"}

    await made.commit({"id": 2, "a": "x", "b": [1], "d": {"e": 1.5}})
    await made.sink.close()

    assert made.reasons == []
    assert sorted((row["id"] or 0, row["a"]) for row in kind.rows()) == [(0, None), (1, None), (2, "x")]


async def test_a_field_that_cannot_be_a_column_is_a_bad_record_that_names_it(kind):
    made = await job(kind, **{"flink.sink.partitions": "dt={eventTime:%Y-%m-%d}"})
    await made.commit({"id": 1}, {"id": 2, "ID": 3}, {"id": 4, "stream": "x"}, {"id": 5, "dt": 6}, {"id": 7, "": 8})
    await made.sink.close()

    assert [row["id"] for row in kind.rows()] == [1]
    names = [reason.partition("the field ")[2].split("'")[1] for reason in made.reasons]
    assert names == ["ID", "stream", "dt", ""]


async def test_types_of_a_table_that_is_there_are_those_of_the_rows(kind, tmp_path):
    there = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([0], pa.timestamp("us", "UTC"))})
    if isinstance(kind, Delta):
        write_deltalake(str(kind.data), there)
    else:
        catalog = load_catalog("default", **kind.catalog)
        catalog.create_namespace("lake")
        catalog.create_table("lake.orders", there.schema).append(there)

    made = await job(kind)
    await made.commit({"id": 2, "at": "1970-01-01T00:00:01Z", "new": "x"}, {"id": 2**31})
    await made.sink.close()

    assert sorted((row["id"], row["at"].second, row["new"]) for row in kind.rows()) == [(1, 0, None), (2, 1, "x")]
    assert made.reasons == ["ValueError: it is not a valid row of the schema: $.id: expected int <= 2147483647"]


async def test_of_two_workers_that_add_a_field_at_once_the_first_one_says_its_type(kind):
    first, second = await job(kind), await job(kind, 2)
    await first.write({"id": 1, "x": 1})
    await second.write({"id": 2, "x": "text"}, {"id": 3})
    await first.commit()
    await second.commit()
    await first.sink.close()
    await second.sink.close()

    assert sorted((row["id"], row["x"]) for row in kind.rows()) == [(1, 1), (3, None)]
    assert second.reasons == ["ValueError: it is not a valid row of the schema: $.x: expected int | null, got str"]


async def test_a_field_that_another_worker_adds_between_reading_the_table_and_changing_it_is_taken_from_there(kind):
    first, second = await job(kind), await job(kind, 2)
    table, before = second.sink._table, second.sink._table.columns()
    answers, columns_now = iter([before]), table.columns
    table.columns = lambda: next(answers, None) or columns_now()
    await first.commit({"id": 1, "x": 1})
    await second.commit({"id": 2, "x": "text"}, {"id": 3, "y": "new"})
    await first.sink.close()
    await second.sink.close()

    assert sorted((row["id"], row["x"], row["y"]) for row in kind.rows()) == [(1, 1, None), (3, None, "new")]
    assert second.reasons == ["ValueError: it is not a valid row of the schema: $.x: expected int | null, got str"]


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_columns_that_must_not_change_are_refused_beside_infer(tmp_path, sink):
    made = {"delta": Delta, "iceberg": Iceberg}[sink](tmp_path)

    with pytest.raises(rp.ConfigurationError, match=r"flink.deserializer.schema=INFER adds columns. Valid: EVOLVE"):
        made.sink(**INFER, **{"flink.sink.table.columns": "FIXED"})


BY_FIELDS = {"flink.sink.partitions": "customer={customer}/dt={at:%Y-%m-%d}/country={address.country}"}
BY_FIELD = {"flink.sink.partitions": "customer={customer}/dt={at:%Y-%m-%d}"}


async def test_a_new_table_is_partitioned_by_fields_whose_types_the_first_records_show(kind):
    made = await job(kind, **BY_FIELD)
    await made.commit()
    await made.commit({"customer": 7, "at": "2026-11-26T23:00:00-02:00"}, {"customer": 8}, {"id": 1})
    await made.commit({"customer": "x"}, {"customer": 9, "at": "soon"})
    await made.sink.close()

    assert sorted((row["customer"] or 0, str(row["at"])[:13]) for row in kind.rows()) == [
        (0, "None"),
        (7, "2026-11-27 01"),
        (8, "None"),
    ]
    assert columns(kind).field("customer").type == pa.int64()
    assert len(data_files(kind)) == 3
    reasons = ["$.customer: expected int | null, got str", "$.at: invalid RFC3339 encoded datetime"]
    assert made.reasons == [f"ValueError: it is not a valid row of the schema: {reason}" for reason in reasons]


async def test_a_field_of_a_partition_that_the_first_records_lack_is_a_text(kind):
    made = await job(kind, **BY_FIELD)
    await made.commit({"id": 1}, {"id": 2, "customer": [1]})
    await made.commit({"id": 3, "customer": "NO"})
    await made.sink.close()

    assert fields(kind, "id", "customer") == [(1, None), (3, "NO")]
    assert made.reasons == [
        "ValueError: it is not a valid row of the schema: $.customer: expected str | null, got array"
    ]


async def test_a_restart_keeps_the_types_of_partitions(kind):
    first = await job(kind, **BY_FIELD)
    await first.commit({"customer": True})
    await first.sink.close()
    second = await job(kind, 2, **BY_FIELD)
    await second.commit({"customer": False})
    await second.sink.close()

    assert sorted(row["customer"] for row in kind.rows()) == [False, True]


async def test_the_first_of_two_workers_makes_the_table_whose_types_the_other_one_takes(kind):
    first, second = await job(kind, **BY_FIELD), await job(kind, 2, **BY_FIELD)
    await first.write({"customer": 1})
    await second.write({"customer": "x"}, {"customer": 2})
    await first.commit()
    await second.commit()

    assert sorted(row["customer"] for row in kind.rows()) == [1, 2]
    assert second.reasons == [
        "ValueError: it is not a valid row of the schema: $.customer: expected int | null, got str"
    ]
    for made in (first, second):
        await made.sink.close()


async def test_a_new_table_is_partitioned_by_a_field_inside_an_object(kind):
    made = await job(kind, **BY_FIELDS)
    await made.commit({"id": 1, "address": {"country": "NO"}}, {"id": 2, "address": None}, {"id": 3})
    await made.commit({"id": 4, "address": {"country": 5}}, {"id": 6, "address": {"country": "SE", "code": 1}})
    await made.sink.close()

    assert sorted((row["id"], (row["address"] or {}).get("country")) for row in kind.rows()) == [
        (1, "NO"),
        (2, None),
        (3, None),
        (6, "SE"),
    ]
    assert len(data_files(kind)) == 3
    assert made.reasons == [
        "ValueError: it is not a valid row of the schema: $.address.country: expected str | null, got int"
    ]


async def test_a_new_table_is_partitioned_by_a_time_inside_an_object(kind):
    made = await job(kind, **{"flink.sink.partitions": "hour={order.at:%Y-%m-%d %H}"})
    for at in ("2026-11-26T06:59:59.999Z", "2026-11-26T07:00:00+00:00", "1969-12-31T23:59:59Z", None):
        await made.commit({"order": {"at": at}}, {"order": {"at": at, "id": 1}})
    await made.sink.close()

    rows = [row["order"] and row["order"]["at"] for row in kind.rows()]
    assert sorted(str(at)[:19] for at in rows) == [
        *["1969-12-31 23:59:59"] * 2, *["2026-11-26 06:59:59"] * 2, *["2026-11-26 07:00:00"] * 2, "None", "None",
    ]  # fmt: skip
    if isinstance(kind, Iceberg):
        assert sorted(str(file.file.partition) for file in kind.table().scan().plan_files()) == [
            "Record[-1]", "Record[498798]", "Record[498799]", "Record[None]",
        ]  # fmt: skip
        found = kind.table().scan(row_filter="order.at < '1970-01-01T00:00:00+00:00'")
        assert (len(list(found.plan_files())), len(found.to_arrow())) == (1, 2)


async def test_files_are_sorted_by_a_field_that_the_first_records_show(kind):
    made = await job(kind, **{"flink.sink.parquet.sort": "price"})
    await made.commit({"price": 2.5}, {"price": 1})
    await made.sink.close()

    assert [row["price"] for row in kind.rows()] == [1.0, 2.5]


async def test_a_group_asks_a_table_that_nobody_has_made_yet_for_its_writers(kind):
    made = await job(kind, **BY_FIELD)

    assert list(await made.sink.writers()) == []
    assert await made.sink.forget_ended_lives(lambda life: True)
    await made.sink.close()


async def test_delta_finds_rows_by_the_statistics_of_columns_that_came_later(tmp_path):
    kind = Delta(tmp_path)
    made = await job(kind)
    await made.write({"id": 1})
    await made.sink._write_waiting()
    await made.commit({"id": 2, "n": 7})
    await made.sink.close()

    table = DeltaTable(str(kind.data))
    assert table.to_pyarrow_table(filters=[("n", "=", 7)])["id"].to_pylist() == [2]
    assert table.to_pyarrow_table(filters=[("id", "=", 1)])["n"].to_pylist() == [None]


ODD = [
    "c d",
    "a,b",
    "x=y",
    "a;b",
    "{x}",
    "(x)",
    "a.b",
    "a[0]",
    "ü",
    "1",
    "-",
    "'",
    '"',
    "class",
    "__init__",
    "self",
    "element",
    "\\",
    "%",
    "/",
    "x" * 300,
]


@pytest.mark.random
async def test_names_of_any_kind_are_columns_or_bad_records_and_never_end_a_job(kind):
    made, names = await job(kind), ODD[:: inputs(1, 4)]
    for name in names:
        await made.commit({"id": 1, name: 2, "in": {name: 3}, "of": [{name: 4}]})
    await made.sink.close()

    rows = kind.rows()
    for name in names:
        if not any(repr(name) in reason for reason in made.reasons):
            assert [row[name] for row in rows if row.get(name) is not None] == [2], name
            assert [row["in"][name] for row in rows if row["in"].get(name) is not None] == [3], name
    assert len(rows) + len(made.reasons) == len(names)
