"""A job into a table, from its properties: each record once, over restarts; positions beside the table, or at `flink.state.uri`."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from .lake_tables import Delta, Iceberg, payloads


@dataclass
class Order:
    price: float


def properties_of(kind):
    if isinstance(kind, Delta):
        return {"flink.sink": "delta", "flink.sink.delta.uri": str(kind.data)}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in kind.catalog.items()}
    return given | {
        "flink.sink": "iceberg",
        "flink.sink.iceberg.table": "lake.orders",
        "flink.state.uri": str(kind.folder / "state"),
    }


async def run(endpoint, kind, properties=None, **more):
    given = {
        **endpoint.properties(),
        **properties_of(kind),
        "flink.job.name": "job",
        "flink.stream.initpos": "TRIM_HORIZON",
        **(properties or {}),
    }
    async with rp.DataFetcher("orders", given, **more) as fetcher:
        return await fetcher.run_bounded(stop_at_tip=True)


@pytest.mark.parametrize("kind", [Delta, Iceberg])
async def test_each_record_is_there_once_over_restarts(tmp_path, kind):
    kind = kind(tmp_path)
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        for start in range(3):
            for n in range(20):
                endpoint.stream("orders").put(b"%d-%d" % (start, n), f"key-{n}")
            await run(endpoint, kind)
        await run(endpoint, kind)

    assert payloads(kind) == sorted(b"%d-%d" % (start, n) for start in range(3) for n in range(20))


async def test_fields_of_a_type_are_columns_that_other_tools_read(tmp_path):
    kind = Delta(tmp_path)
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        for price in (b"1.5", b"2"):
            endpoint.stream("orders").put(b'{"price": %s}' % price, "key")
        await run(endpoint, kind, deserializer=Order)

    files = DeltaTable(kind.data).file_uris()
    assert duckdb.sql(f"select sum(price), count(distinct sequenceNumber) from read_parquet({files!r})").fetchall() == [
        (3.5, 2)
    ]


async def test_a_file_of_all_shards_is_sorted_and_compressed_as_properties_say(tmp_path):
    kind = Delta(tmp_path)
    given = {"compression": "ZSTD", "sort": "price"}
    async with LocalKinesis(streams={"orders": 4}) as endpoint:
        for price in range(2_000):
            endpoint.stream("orders").put(b'{"price": %d}' % (price * 7 % 2_000), f"key-{price}")
        await run(
            endpoint,
            kind,
            {f"flink.sink.parquet.{name}": value for name, value in given.items()},
            deserializer=Order,
        )

    (uri,) = DeltaTable(kind.data).file_uris()
    file = pq.ParquetFile(uri)
    assert file.read()["price"].to_pylist() == [*range(2_000)]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


async def test_positions_of_another_table_are_refused(tmp_path):
    kind = Iceberg(tmp_path)
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        endpoint.stream("orders").put(b"a", "key")
        await run(endpoint, kind)
        with pytest.raises(rp.ConfigurationError, match=r"belong to rows in .*lake\.orders.*would begin in the middle"):
            await run(endpoint, kind, {"flink.sink.iceberg.table": "lake.others"})
