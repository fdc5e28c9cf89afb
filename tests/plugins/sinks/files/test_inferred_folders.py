"""`flink.deserializer.schema = INFER`: folders whose columns follow from the data of JSON objects."""

from __future__ import annotations

import json

import duckdb
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.plugins.deserializers.schemas import InferredJson, InferredRow, schema_type

from fakes.batches import batch

EXPECTED = "ValueError: it is not a valid row of the schema: "


class Job:
    """A sink that gets JSON, and the reasons of what it rejects."""

    def __init__(self, kind, folder, first=1, **more):
        self.reasons, self.first = [], first
        self.sink = {"parquet": rp.ParquetSink, "jsonl": rp.JsonlSink}[kind](
            rp.Properties({f"flink.sink.{kind}.path": str(folder), "flink.deserializer.schema": "INFER", **more})
        )

    async def open(self):
        async def reject(records, reason):
            self.reasons.append(reason)

        await self.sink.open(rp.SinkContext(value_type=InferredRow, reject=reject))
        return self

    async def write(self, *values):
        payloads = [json.dumps(value).encode() for value in values]
        records = batch(*payloads, first=self.first).with_columns(event_times=[0 for _ in values])
        self.first += len(values)
        await self.sink.write(records.with_columns(values=InferredJson().values(records)))

    async def commit(self, *values):
        await self.write(*values)
        await self.sink.flush()


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


async def test_a_field_in_a_pattern_needs_its_column_and_then_partitions_the_files(tmp_path):
    pattern = {"flink.sink.partitions": "country={address.country}"}
    with pytest.raises(rp.ConfigurationError, match=r"'address.country' is not a column"):
        await Job("parquet", tmp_path / "new", **pattern).open()

    by_time = {"flink.sink.partitions": "dt={eventTime:%Y-%m-%d}"}
    job = await Job("parquet", tmp_path / "lake", **by_time).open()
    await job.commit({"id": 1}, {"id": 2, "dt": "x"})

    assert [path.parent.parent.parent.name for path in (tmp_path / "lake").rglob("*.parquet")] == ["dt=1970-01-01"]
    assert ["'dt' cannot be a column" in reason for reason in job.reasons] == [True]
