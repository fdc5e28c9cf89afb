"""The page about lakes: its jobs write each record once, into tables that deltalake, pyiceberg and DuckDB read."""

import asyncio
import os
import re
import sys
from dataclasses import dataclass

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from processes.command_line import ROOT

PAGE = ROOT / "docs/how-to/write-to-a-lake.md"
ORDER = b'{"price":1.5,"address":{"country":"%s"}}'


def jobs(folder):
    """The properties of the page, with a local folder in place of the bucket and of the service's catalogue."""
    blocks = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = [dict(line.split(" = ") for line in block.splitlines()) for block in blocks]
    for properties in found:
        properties |= {key: value.replace("s3://lake", str(folder)) for key, value in properties.items()}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    found[1] |= {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    return found, catalog


@pytest.mark.slow
async def test_the_jobs_of_the_page_write_each_record_once(tmp_path):
    (delta, iceberg), catalog = jobs(tmp_path)
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        for country in ("CH", "DE"):
            endpoint.stream("orders").put(ORDER % country.encode(), country)
        for properties in (delta, iceberg, delta, iceberg):
            given = {**endpoint.properties(), **properties, "flink.stream.initpos": "TRIM_HORIZON"}
            async with rp.DataFetcher("orders", given) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True)

    table = DeltaTable(tmp_path / "orders")
    assert table.metadata().partition_columns == ["dt", "country"]
    assert table.to_pyarrow_table()["country"].to_pylist() in (["CH", "DE"], ["DE", "CH"])
    assert duckdb.sql(f"select sum(price) from read_parquet({table.file_uris()!r})").fetchall() == [(3,)]
    rows = load_catalog("default", **catalog).load_table("shop.orders").scan().to_arrow()
    assert sorted(payload for payload in rows["data"].to_pylist()) == sorted(
        ORDER % country for country in (b"CH", b"DE")
    )


@dataclass
class Change:
    id: int
    status: str
    op: str | None = None


def iceberg_of(folder):
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given |= {"flink.sink": "iceberg", "flink.sink.iceberg.table": "shop.orders", "flink.state.uri": f"{folder}/state"}
    return catalog, given


@pytest.mark.slow
@pytest.mark.parametrize("script_name", ["merge_orders.py", "merge_iceberg.py"])
async def test_the_merge_of_the_page_keeps_the_newest_row_of_each_key(tmp_path, script_name):
    script = re.search(rf"```python\n(# {script_name}\n.*?)```", PAGE.read_text(), re.DOTALL)[1]
    catalog, given = iceberg_of(tmp_path)
    if script_name == "merge_orders.py":
        given = {"flink.sink": "delta", "flink.sink.delta.uri": f"{tmp_path}/orders"}
    given |= {"flink.job.name": "orders", "flink.stream.initpos": "TRIM_HORIZON"}
    environment = {f"PYICEBERG_CATALOG__DEFAULT__{name.upper()}": value for name, value in catalog.items()}

    def latest():
        if script_name == "merge_orders.py":
            return DeltaTable(tmp_path / "latest_orders").to_pyarrow_table().to_pylist()
        return load_catalog("default", **catalog).load_table("shop.latest_orders").scan().to_arrow().to_pylist()

    async with LocalKinesis(streams={"orders": 1}) as endpoint:

        async def merged(*payloads):
            for payload in payloads:
                endpoint.stream("orders").put(payload, "key")
            async with rp.DataFetcher("orders", {**endpoint.properties(), **given}, deserializer=Change) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, str(tmp_path), env={**os.environ, **environment}
            )
            assert await process.wait() == 0
            return sorted((row["id"], row["status"], row["op"]) for row in latest())

        first = await merged(*(b'{"id":%d,"status":"paid"}' % number for number in (1, 2)), b'{"id":1,"status":"sent"}')
        assert first == [(1, "sent", None), (2, "paid", None)]
        assert await merged() == first
        assert await merged(b'{"id":2,"status":"paid","op":"D"}') == [(1, "sent", None), (2, "paid", "D")]


@pytest.mark.slow
async def test_a_table_of_delta_is_rewritten_with_wider_types_and_the_job_goes_on(tmp_path):
    script = re.search(r"```python\n(# widen.py\n.*?)```", PAGE.read_text(), re.DOTALL)[1]
    given = {"flink.job.name": "orders", "flink.sink": "delta", "flink.sink.delta.uri": f"{tmp_path}/orders"}
    given |= {"flink.stream.initpos": "TRIM_HORIZON", "flink.sink.partitions": "country={address.country}"}
    narrow, wide = (
        "id INT, price FLOAT, address STRUCT<country: STRING>",
        "id BIGINT, price DOUBLE, address STRUCT<country: STRING>",
    )
    async with LocalKinesis(streams={"orders": 1}) as endpoint:

        async def run(schema, *payloads):
            for payload in payloads:
                endpoint.stream("orders").put(payload, "key")
            job = {**endpoint.properties(), **given, "flink.deserializer.schema": schema}
            async with rp.DataFetcher("orders", job) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True)

        await run(narrow, b'{"id":1,"price":0.5,"address":{"country":"NO"}}', b'{"id":2,"price":1.5}')
        with pytest.raises(rp.ConfigurationError, match=r"column 'id' is integer in .*rewrite the table"):
            await run(wide)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
        assert await process.wait() == 0
        await run(wide, b'{"id":%d,"price":1e300,"address":{"country":"SE"}}' % 2**40)

    rows = DeltaTable(tmp_path / "orders").to_pyarrow_table(columns=["id", "price", "country", "address"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (1, 0.5, "NO", {"country": "NO"}),
        (2, 1.5, None, None),
        (2**40, 1e300, "SE", {"country": "SE"}),
    ]


def test_the_page_has_the_costs_that_are_computed():
    from lake.cost import firehose_sentence, page_rows

    assert [row for row in [*page_rows(), firehose_sentence()] if row not in PAGE.read_text()] == []
