"""`flink.deserializer.schema = INFER`: folders whose columns follow from the data of JSON objects."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.plugins.deserializers.schemas import schema_type

from fakes.inferred_rows import Job

EXPECTED = "ValueError: it is not a valid row of the schema: "


@pytest.fixture(params=["parquet", "jsonl"])
def kind(request):
    return request.param


def rows(kind, folder, fields):
    if kind == "parquet":
        found = duckdb.sql(
            f"SELECT {fields} FROM read_parquet('{folder}/**/*.parquet', union_by_name=true) ORDER BY id"
        )
    else:
        of_value = f"SELECT unnest(value) FROM read_json('{folder}/**/*.jsonl', format='newline_delimited')"
        found = duckdb.sql(f"SELECT {fields} FROM ({of_value}) ORDER BY id")
    return found.fetchall()


async def test_new_fields_are_columns_also_inside_objects_and_duckdb_reads_all_files_as_one_table(kind, tmp_path):
    job = await Job(kind, tmp_path).open()
    await job.commit({"id": 1, "address": {"country": "NO"}})
    await job.commit({"id": 2, "price": 1.5, "address": {"country": "SE", "code": 7}})

    assert rows(kind, tmp_path, "id, price, address.country, address.code") == [
        (1, None, "NO", None),
        (2, 1.5, "SE", 7),
    ]
    assert job.reasons == []


async def test_a_record_that_is_nested_too_deeply_is_rejected_alone(kind, tmp_path):  # S7
    """It ended the job at each start, whatever the policy for bad records."""
    deep = 1
    for _ in range(40):
        deep = [deep]
    job = await Job(kind, tmp_path).open()
    await job.commit({"id": 1}, {"id": 2, "deep": deep}, {"id": 3, "price": 1.5})

    assert rows(kind, tmp_path, "id, price") == [(1, None), (3, 1.5)]
    assert job.reasons == ["ValueError: the value is nested more than 32 levels deep"]


async def test_each_change_of_the_columns_is_told_once(kind, tmp_path, caplog):
    caplog.set_level("INFO", "recordpublisher.columns")
    job = await Job(kind, tmp_path).open()
    await job.commit({"id": 1})
    await job.commit({"id": 2, "price": 1.5})
    await job.commit({"id": 3, "price": 1.5})

    assert [record.getMessage() for record in caplog.records] == [
        f"new or wider columns of {tmp_path}: id BIGINT",
        f"new or wider columns of {tmp_path}: price DOUBLE",
    ]


def by_duckdb(folder):
    return (
        duckdb.sql(f"SELECT * FROM read_parquet('{folder}/**/*.parquet', union_by_name=true)")
        .to_arrow_table()
        .to_pylist()
    )


def by_polars(folder):
    files = [pl.scan_parquet(file, hive_partitioning=True) for file in Path(folder).glob("[!.]*/**/*.parquet")]
    return pl.concat(files, how="diagonal_relaxed").collect().to_dicts()


@pytest.mark.parametrize("read", [by_duckdb, by_polars])
async def test_readers_unite_files_with_different_columns(tmp_path, read):
    job = await Job("parquet", tmp_path, **{"flink.sink.partitions": "country={address.country}"}).open()
    await job.commit({"id": 1, "address": {"country": "NO"}, "stops": [{"a": 1}]})
    await job.commit({"id": 2, "price": 1.5, "address": {"country": "SE", "code": 7}, "stops": [{"a": 2, "b": "x"}]})
    await job.commit({"id": 3})

    found = sorted(read(tmp_path), key=lambda row: row["id"])
    assert [(row["price"], row["country"], row["address"], row["stops"]) for row in found] == [
        (None, "NO", {"country": "NO", "code": None}, [{"a": 1, "b": None}]),
        (1.5, "SE", {"country": "SE", "code": 7}, [{"a": 2, "b": "x"}]),
        (None, None, None, None),
    ]


async def test_a_type_that_does_not_fit_is_a_bad_record_that_names_the_field_and_both_types(kind, tmp_path):
    job = await Job(kind, tmp_path).open()
    await job.commit({"id": 1, "at": {"hour": 1}}, {"id": "x"}, {"id": 2}, {"at": {"hour": "one"}}, {"id": 3})

    assert rows(kind, tmp_path, "id") == [(1,), (2,), (3,)]
    assert job.reasons == [
        f"{EXPECTED}$.id: expected int | null, got str",
        f"{EXPECTED}$.at.hour: expected int | null, got str",
    ]


async def test_a_restart_keeps_the_types_whatever_comes_first(kind, tmp_path):
    job = await Job(kind, tmp_path).open()
    await job.commit({"id": 1, "x": 1.5, "address": {"country": "NO"}})
    again = await Job(kind, tmp_path, first=10).open()
    await again.commit({"id": 2, "x": 1}, {"id": "x"}, {"id": 3, "address": "NO"})

    assert rows(kind, tmp_path, "id, x, address.country") == [(1, 1.5, "NO"), (2, 1.0, None)]
    assert again.reasons == [
        f"{EXPECTED}$.id: expected int | null, got str",
        f"{EXPECTED}$.address: expected object | null, got str",
    ]


async def test_of_two_workers_that_add_a_field_at_once_the_first_one_says_its_type(kind, tmp_path):
    first, second = await Job(kind, tmp_path).open(), await Job(kind, tmp_path, first=10).open()
    store, before = second.sink.entries(), await second.sink.entries().get("columns")
    await first.commit({"id": 1, "x": 1})
    real = store.get

    async def get(name):  # it has read before the first one has written
        store.get = real
        return VersionedValue(before.value, before.version)

    store.get = get
    second.sink._files_there.entries = store
    await second.commit({"id": 2, "x": "text"}, {"id": 3, "y": True})

    assert rows(kind, tmp_path, "id, x, y") == [(1, 1, None), (3, None, True)]
    assert second.reasons == [f"{EXPECTED}$.x: expected int | null, got str"]


async def test_a_batch_that_arrives_while_columns_are_stored_waits_for_the_next_file(kind, tmp_path):
    job = await Job(kind, tmp_path).open()
    real = job.sink.learn

    async def learn(contents):
        await real(contents)
        job.sink.learn = real
        await job.write({"id": 2, "new": "x"})

    job.sink.learn = learn
    await job.commit({"id": 1})
    await job.sink.flush()

    assert rows(kind, tmp_path, "id, new") == [(1, None), (2, "x")]
    assert job.reasons == []


async def test_a_folder_that_a_schema_began_continues_with_its_columns(tmp_path):
    declared = rp.ParquetSink(rp.Properties({"flink.sink.parquet.path": str(tmp_path)}))
    of = rp.Properties(deserializer_schema="id INT, at TIMESTAMP, price DECIMAL(12, 2)")
    await declared.open(rp.SinkContext(value_type=schema_type(of)))
    job = await Job("parquet", tmp_path).open()
    await job.commit({"id": 1, "at": "1970-01-01T00:00:01Z", "price": "9.5"}, {"id": 2**31})

    found = duckdb.sql(f"SELECT id, epoch(\"at\"), price::VARCHAR FROM '{tmp_path}/**/*.parquet'").fetchall()
    assert found == [(1, 1.0, "9.50")]
    assert job.reasons == [f"{EXPECTED}$.id: expected int <= 2147483647"]


async def test_a_new_folder_is_partitioned_by_fields_whose_types_the_first_records_show(tmp_path):
    pattern = "customer={customer}/dt={at:%Y-%m-%d}/country={address.country}"
    pattern = {"flink.sink.partitions": pattern, "flink.sink.parquet.sort": "id"}
    job = await Job("parquet", tmp_path, **pattern).open()
    await job.sink.flush()
    await job.commit(
        {"id": 2, "customer": 7, "at": "2026-11-26T23:00:00-02:00", "address": {"country": "NO"}}, {"id": 1}
    )
    again = await Job("parquet", tmp_path, first=10, **pattern).open()
    await again.commit({"id": 3, "customer": "x"}, {"id": 4, "customer": 8, "country": "x"}, {"id": 5, "customer": 9})

    found = duckdb.sql(
        f"SELECT id, customer, dt, country, address.country FROM read_parquet('{tmp_path}/**/*.parquet', union_by_name=true,"
        " hive_types={'customer': BIGINT, 'dt': DATE, 'country': VARCHAR}) ORDER BY id"
    ).fetchall()
    assert [(row[0], row[1], row[2] and row[2].isoformat(), *row[3:]) for row in found] == [
        (1, None, None, None, None),
        (2, 7, "2026-11-27", "NO", "NO"),
        (5, 9, None, None, None),
    ]
    assert again.reasons[0] == f"{EXPECTED}$.customer: expected int | null, got str"
    assert ["'country' cannot be a column" in reason for reason in again.reasons] == [False, True]


@pytest.mark.parametrize("name", ["stream", "eventTime", "data", "value"])
async def test_a_field_with_the_name_of_a_column_of_metadata_stands_inside_the_value_of_json_lines(tmp_path, name):
    job = await Job("jsonl", tmp_path).open()
    await job.commit({"id": 1, name: 7}, {"id": 2, name: "x"})
    again = await Job("jsonl", tmp_path, first=10).open()
    await again.commit({"id": 3, name: 8}, {"id": 4, name: "x"})

    assert rows("jsonl", tmp_path, f'id, "{name}"') == [(1, 7), (3, 8)]
    assert [*job.reasons, *again.reasons] == [f"{EXPECTED}$.{name}: expected int | null, got str"] * 2
