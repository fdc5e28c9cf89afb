"""`spark.read` on a real Spark: the same rows for every action, whatever arrives and however the stream changes meanwhile."""

from __future__ import annotations

import json

import pytest

from spark_jobs.queries import WAIT_SECONDS, numbers, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]


def options_of(stream, **more):
    given = {"stream": stream.name, **stream.served.endpoint.properties(), **more}
    return {key: str(value) for key, value in given.items()}


def batch(spark, stream, **more):
    return spark.read.format("kinesis").options(**options_of(stream, **more)).load()


def numbers_in(frame):
    return sorted(json.loads(row.data)["n"] for row in frame.select("data").collect())


@pytest.mark.slow
def test_two_actions_see_the_same_rows_through_a_split_and_new_records(spark, kinesis):
    stream = kinesis("batch-actions")
    stream.put(300)
    frame = batch(spark, stream)
    stream.put(50)  # after the DataFrame was loaded
    assert numbers_in(frame) == list(range(300))
    stream.split(0)
    stream.put(100)
    assert numbers_in(frame) == list(range(300))
    assert frame.count() == 300


def test_an_end_by_shard_is_the_start_of_the_next_read_also_of_one_column(spark, kinesis):
    stream = kinesis("batch-chained", 1)
    stream.put(40)
    (record,) = [record for record in stream.records() if json.loads(record.data)["n"] == 25]
    position = json.dumps({record.shard_id: record.sequence_number})
    assert numbers_in(batch(spark, stream, endingPosition=position)) == list(range(25))
    chosen = spark.read.format("kinesis").options(**options_of(stream, startingPosition=position)).schema("data BINARY")
    assert numbers_in(chosen.load()) == list(range(25, 40))


def test_two_tasks_read_the_five_shards_of_a_stream(spark, kinesis):
    stream = kinesis("batch-tasks", 5)
    stream.put(100)
    frame = batch(spark, stream, maxTasks=2)
    assert frame.rdd.getNumPartitions() == 2
    assert numbers_in(frame) == list(range(100))
    assert batch(spark, stream, shardsPerTask=1).rdd.getNumPartitions() == 5


@pytest.mark.parametrize("name", ["kinesis", "recordpublisher"])
def test_a_temporary_view_is_a_batch_read_by_each_name_of_the_format(spark, kinesis, name):
    stream = kinesis(f"batch-view-{name}", 1)
    stream.put(20)
    given = ", ".join(f"`{key}` '{value}'" for key, value in options_of(stream).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW batch_view USING {name} OPTIONS ({given})")
    stream.put(20)
    assert [row.n for row in spark.sql("SELECT count(*) AS n FROM batch_view").collect()] == [20]
    assert spark.table("batch_view").schema == spark.read.format(name).options(**options_of(stream)).load().schema


def test_sql_over_a_view_of_a_querys_dataframe_is_a_stream(spark, kinesis, tmp_path):
    stream = kinesis("streaming-view", 1)
    stream.put(20)
    stream.load(spark, tmp_path).createOrReplaceTempView("live")
    assert spark.table("live").isStreaming
    query = to_parquet(spark.sql("SELECT n FROM live WHERE n >= 5"), tmp_path, availableNow=True)
    query.awaitTermination()
    assert numbers(spark, tmp_path) == list(range(5, 20))


def test_c2_a_table_is_refused_and_the_view_is_named(spark):
    view = r"USING' is 'kinesis': Spark does not pass the options .*. Valid: CREATE TEMPORARY VIEW orders USING kinesis"
    with pytest.raises(Exception, match=view):
        spark.sql("CREATE TABLE batch_table USING kinesis OPTIONS (stream 'orders', `aws.region` 'us-east-1')")
