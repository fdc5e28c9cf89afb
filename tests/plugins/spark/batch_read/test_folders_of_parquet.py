"""Spark reads a partitioned folder of the parquet sink: the values of folders' names are those of the rows."""

from __future__ import annotations

from typing import Any

import pytest

import recordpublisher as rp

from fakes.batches import batch

pytestmark = pytest.mark.spark

KEYS = ["de", "a/b", "a=b", "a b", "50%", "ü ß", "a:b+c?#&'\""]


async def test_spark_finds_each_value_of_a_partition(spark: Any, tmp_path: Any) -> None:
    given = {"flink.sink.parquet.path": str(tmp_path), "flink.sink.partitions": "partitionKey={partitionKey}"}
    sink = rp.ParquetSink(rp.Properties(given))
    records = batch(*(key.encode() for key in [*KEYS, ""]))
    for record, key in zip(records.records, [*KEYS, ""], strict=True):
        record.partition_key = key
    await sink.open(rp.SinkContext())
    await sink.write(records)
    await sink.flush()

    rows = spark.read.parquet(str(tmp_path)).select("data", "partitionKey").collect()
    assert {bytes(row.data).decode(): row.partitionKey for row in rows} == {**{key: key for key in KEYS}, "": None}
