"""A real Spark reads what the sinks of files and tables have written: each type, and files whose columns differ."""

from __future__ import annotations

import json
from datetime import time

import pytest
from deltalake import DeltaTable
from every_type import SOURCES, catalog_of, plain, write
from pyiceberg.catalog import load_catalog

from recordpublisher.plugins.deserializers.schemas import columns_text, merge_shapes, shape_of

from fakes.inferred_rows import Job
from spark_jobs.queries import WAIT_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
ORDERS = [
    {"id": 1, "address": {"country": "NO"}, "stops": [{"a": 1}]},
    {"id": 2, "price": 1.5, "address": {"country": "SE", "code": 7}, "stops": [{"a": 2, "b": "x"}]},
    {"id": 3},
]


def data_files(sink, folder):
    """The Parquet files of a table: this Spark has no jars of the formats."""
    if sink == "delta":
        return DeltaTable(str(folder / "every")).file_uris()
    if sink == "iceberg":
        table = load_catalog("default", **catalog_of(folder)).load_table("lake.every")
        return [task.file.file_path for task in table.scan().plan_files()]
    return [str(folder / "every")]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg"])
async def test_every_type_is_read_by_spark(spark, monkeypatch, tmp_path, sink, kind):
    values = await write(monkeypatch, kind, sink, tmp_path, without=[time])

    rows = (
        spark.read.option("recursiveFileLookup", "true").parquet(*data_files(sink, tmp_path)).select(*values).collect()
    )
    shown = [dict(zip(values, map(plain, row, values.values()), strict=True)) for row in rows]
    differing = [{name: row[name] for name in values if row[name] != values[name]} for row in shown]
    assert len(rows) == 2
    assert {} in differing, min(differing, key=len)


async def test_spark_unites_the_files_of_a_folder_whose_columns_follow_from_the_data(spark, tmp_path):
    job = await Job("parquet", tmp_path, **{"flink.sink.partitions": "part={address.country}"}).open()
    for order in ORDERS:
        await job.commit(order)

    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id")
    found = rows.select("id", "price", "part", "address.code", "stops.b").collect()
    assert [tuple(row) for row in found] == [
        (1, None, "NO", None, [None]),
        (2, 1.5, "SE", 7, ["x"]),
        (3, None, None, None, None),
    ]


def test_the_columns_that_are_printed_decode_json_in_spark(spark):
    seen = {}
    for order in ORDERS:
        seen = merge_shapes(seen, shape_of(order))
    rows = spark.createDataFrame([(json.dumps(order).encode(),) for order in ORDERS], "data BINARY")

    decoded = rows.selectExpr(f"from_json(CAST(data AS STRING), '{columns_text(seen)}') AS o").selectExpr("o.*")
    assert [tuple(row) for row in decoded.select("id", "address.code", "stops.b").collect()] == [
        (1, None, [None]),
        (2, 7, ["x"]),
        (3, None, None),
    ]
