"""`mode=continuous` on a real Spark: fetchers that live in a task, and a query beside them."""

from __future__ import annotations

import json
import time

import pytest

import recordpublisher as rp

from spark_jobs.queries import PATIENCE, numbers, rows_so_far, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE)]
NOW = {"availableNow": True}
POLLING = {"mode": "continuous", "flink.stream.recordpublisher": "POLLING", "spoolRollInterval": 100}
FAN_OUT = {**POLLING, "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "continuous"}


def test_every_record_once_by_fan_out_through_a_split_and_a_restart_of_both(spark, kinesis, tmp_path):
    stream = kinesis("continuous")
    options = stream.options(tmp_path, **FAN_OUT)
    stream.put(1000)
    with rp.spark.fetchers(spark, options, tasks=1) as fetchers:
        query = to_parquet(stream.load(spark, tmp_path, **FAN_OUT), tmp_path)
        wait_for_rows(query, 1000)
        assert fetchers.lanes == {0}
        stream.split(0)
        stream.put(1000)
        wait_for_rows(query, 2000)
        query.stop()
        stream.put(300)
    assert not fetchers.is_running
    with rp.spark.fetchers(spark, options, tasks=1):
        again = to_parquet(stream.load(spark, tmp_path, **FAN_OUT), tmp_path)
        stream.put(300)
        wait_for_rows(again, 600)
        again.stop()
    assert numbers(spark, tmp_path) == list(range(2600))
    offset = json.loads(again.lastProgress["sources"][0]["endOffset"])
    assert offset["generation"] == 2
    assert stream.served.call(lambda: [each.name for each in stream.stream.consumers.all()]) == ["continuous"]  # F8


def test_available_now_takes_what_the_fetchers_have_read(spark, kinesis, tmp_path):
    stream = kinesis("continuous-now")
    stream.put(500)
    with rp.spark.fetchers(spark, stream.options(tmp_path, **POLLING), tasks=1):
        seen = 0
        while seen < 500:  # no fetcher waits for a run, and a run waits for no fetcher
            query = to_parquet(stream.load(spark, tmp_path, **POLLING), tmp_path, **NOW)
            query.awaitTermination()
            seen += rows_so_far(query)
            time.sleep(0.2)
    assert numbers(spark, tmp_path) == list(range(500))


def test_fetchers_that_give_up_end_the_query_with_their_reason(spark, kinesis, tmp_path):
    stream = kinesis("continuous-bad")
    stream.put(10)
    bad = {**POLLING, "flink.deserializer": "json", "flink.deserializer.error": "FAIL"}
    stream.served.call(lambda: stream.stream.put(b"no JSON", "key"))
    fetchers = rp.spark.fetchers(spark, stream.options(tmp_path, **bad), tasks=1)
    query = to_parquet(stream.load(spark, tmp_path, **bad), tmp_path)
    with pytest.raises(Exception, match="the fetchers have given up: fetcher 0 died of DeserializationError"):
        query.awaitTermination(PATIENCE)
    with pytest.raises(rp.RecordPublisherError, match="DeserializationError"):
        fetchers.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("changed", "tasks", "words"),
    [
        ({"mode": "batch"}, 1, "property 'mode' has the value 'BATCH'; valid: CONTINUOUS"),
        ({"metadataLocation": "dynamodb://table/job"}, 1, "a folder or s3://bucket/prefix"),
        ({}, 2, "property 'tasks' has the value 2; valid: fewer than the 2 slots"),
        ({}, 0, "property 'tasks' has the value 0; valid: a whole number of at least 1"),
    ],
)
def test_c2_what_cannot_work_fails_at_the_start(spark, kinesis, tmp_path, changed, tasks, words):
    stream = kinesis(f"continuous-wrong-{abs(hash(words))}")
    with pytest.raises(rp.ConfigurationError, match="property") as raised:
        rp.spark.fetchers(spark, stream.options(tmp_path, **{**POLLING, **changed}), tasks=tasks)
    assert words in str(raised.value)


def test_c2_a_stream_that_does_not_exist_fails_at_the_start(spark, kinesis, tmp_path):
    stream = kinesis("continuous-known")
    with pytest.raises(rp.StreamNotFoundError, match="unknown"):
        rp.spark.fetchers(spark, stream.options(tmp_path, **POLLING, stream="unknown"), tasks=1)
