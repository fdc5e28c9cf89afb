"""`mode=continuous` on a real Spark: exactly once through a split, restarts and a full write-ahead log."""

from __future__ import annotations

import json

import pytest

from spark_jobs.queries import WAIT_SECONDS, numbers, rows_so_far, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}
POLLING = {"mode": "continuous", "flink.stream.recordpublisher": "POLLING", "walRollInterval": 100}
FAN_OUT = {**POLLING, "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "continuous"}


def test_every_record_once_by_fan_out_through_a_split_and_a_restart(spark, kinesis, tmp_path):
    stream = kinesis("continuous")
    stream.put(2000)
    query = to_parquet(stream.load(spark, tmp_path, **FAN_OUT), tmp_path)
    wait_for_rows(query, 2000)
    stream.split(0)
    stream.put(1000)
    wait_for_rows(query, 3000)
    query.stop()
    stream.put(500)
    again = to_parquet(stream.load(spark, tmp_path, "eventTime TIMESTAMP, data BINARY", **FAN_OUT), tmp_path)
    wait_for_rows(again, 500)
    again.stop()
    assert numbers(spark, tmp_path) == list(range(3500))
    offset = json.loads(again.lastProgress["sources"][0]["endOffset"])
    assert (offset["walVersion"], offset["records"]) == (2, 3500)
    shown = json.loads(again.lastProgress["sources"][0]["latestOffset"])
    assert (shown["streams"], shown["records"], shown["bytes"]) == (["continuous"], 3500, offset["bytes"])
    assert shown["shards"] >= 3


def test_available_now_stops_at_the_tip_although_the_log_is_full(spark, kinesis, tmp_path):
    stream = kinesis("continuous-now", 3)
    few = {"maxRecordsPerBatch": 100, "walRollRecords": 50, "maxWalBytes": 5000}
    for count in (500, 300):
        stream.put(count)
        query = to_parquet(stream.load(spark, tmp_path, **POLLING, **few), tmp_path, **NOW)
        query.awaitTermination()
        assert rows_so_far(query) == count
    assert numbers(spark, tmp_path) == list(range(800))
