"""What the parquet sink makes of a payload with a type."""

import json
from dataclasses import dataclass

import duckdb
import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from fakes.batches import batch


@dataclass
class Order:
    price: float


async def written(folder, **more):
    sink = rp.ParquetSink(rp.Properties({"flink.sink.parquet.path": str(folder), **more}))
    await sink.open(rp.SinkContext(value_type=Order))
    await sink.write(batch(b'{"price":1.5}').with_columns(values=[Order(1.5)]))
    await sink.flush(rp.Checkpoint({"version": 2, "generation": 1, "shards": {}}))
    (file,) = folder.rglob("*.parquet")
    return pq.read_table(file, partitioning=None)


async def test_fields_of_the_type_are_columns(tmp_path):
    table = await written(tmp_path)
    assert table["price"].to_pylist() == [1.5]
    assert table.schema.names[-1] == "eventTime"


async def test_by_option_the_payload_is_kept_with_the_value_as_text(tmp_path):
    (row,) = (await written(tmp_path, **{"flink.sink.parquet.columns": "RECORD"})).to_pylist()
    assert (row["data"], json.loads(row["value"])) == (b'{"price":1.5}', {"price": 1.5})


async def test_files_cannot_be_sorted_by_what_is_no_column(tmp_path):
    with pytest.raises(rp.ConfigurationError, match="some of the columns price, stream"):
        await written(tmp_path, **{"flink.sink.parquet.sort": "amount"})


async def test_each_partition_has_files_of_its_own_that_others_find(tmp_path):
    given = {
        "flink.sink.parquet.path": str(tmp_path),
        "flink.sink.partitions": "dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}",
    }
    sink = rp.ParquetSink(rp.Properties(given))
    await sink.open(rp.SinkContext())
    await sink.write(batch(b"a", b"b").with_columns(event_times=[0, 3_600_000]))
    await sink.flush()

    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.parquet"))
    place = "orders/shardId-0/1.-1-2.-1.parquet"
    assert files == [f"dt=1970-01-01/hour=00/{place}", f"dt=1970-01-01/hour=01/{place}"]
    found = duckdb.sql(
        f"select data, hour from read_parquet('{tmp_path}/dt=*/**/*.parquet', hive_partitioning=true) order by data"
    )
    assert found.fetchall() == [(b"a", "00"), (b"b", "01")]


@dataclass
class Keyed:
    key: str


@pytest.mark.parametrize("of", [Keyed, None])
async def test_a_record_whose_folder_has_no_valid_name_is_rejected_before_anything_is_staged(tmp_path, of):
    rejected = []

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason))

    name = "key" if of else "partitionKey"
    given = {"flink.sink.parquet.path": str(tmp_path), "flink.sink.partitions": f"{name}={{{name}}}"}
    keys = ["a", "k" * 300, "../\0", "."]
    records = batch(*(b"x" for _ in keys))
    for record, key in zip(records.records, keys, strict=True):
        record.partition_key = key
    for context in (rp.SinkContext(value_type=of, reject=reject), rp.SinkContext(value_type=of)):
        sink = rp.ParquetSink(rp.Properties(given))
        await sink.open(context)
        await sink.write(records.with_columns(values=[Keyed(key) for key in keys]) if of else records)
        if context.reject is reject:
            await sink.flush()
            continue
        with pytest.raises(
            rp.SinkError, match=rf"record 2 of orders/shardId-0 .*'{name}' is too long for flink.sink.part.*SKIP"
        ):
            await sink.flush()

    assert [numbers for numbers, _ in rejected] == [["2"]]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [
        ".recordpublisher",
        *(f"{name}={written}" for written in (".", "..%2F%00", "a")),
    ]


def test_in_an_object_store_folders_have_what_a_key_has_left():
    sink = rp.ParquetSink(rp.Properties({"flink.sink.parquet.path": "s3://lake/orders", "aws.region": "eu-west-1"}))
    assert (
        sink.folder_bytes + len("s3://lake/orders") + len("/".join(["", "s" * 128, "h" * 128, "f" * 255])) <= 1024 - 1
    )


async def test_what_waits_counts_with_the_bytes_of_its_columns_not_with_those_of_the_records_that_are_gone(tmp_path):
    records = batch(*(b"x" * 100 for _ in range(100)))
    limit = records.held_bytes * 2 // 3
    asked = []
    sink = rp.ParquetSink({"flink.sink.parquet.path": str(tmp_path), "flink.sink.buffer.bytes": limit})
    await sink.open(rp.SinkContext(request_checkpoint=lambda: asked.append(1)))

    await sink.write(records)
    assert asked == []
    await sink.write(records)
    assert asked == [1]


async def test_a_job_without_a_type_keeps_the_payload(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        endpoint.stream("orders").put(b"a", "key")
        given = {
            "flink.sink": "parquet",
            "flink.sink.parquet.path": str(tmp_path),
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        async with rp.DataFetcher("orders", {**endpoint.properties(), **given}) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_table(file, partitioning=None)["data"].to_pylist() == [b"a"]
