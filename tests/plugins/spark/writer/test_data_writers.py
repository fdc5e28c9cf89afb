"""`format("kinesis")` as a sink on a real Spark: every row at least once, and repeats can be recognised."""

from __future__ import annotations

import json

import pytest

from recordpublisher.local import Quotas, serve_in_thread
from recordpublisher.plugins.spark.data_source import KinesisSource
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import KinesisStreamWriter

from spark_jobs.queries import WAIT_SECONDS, Kinesis, dropped_repeats, write_rows, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}


def test_a_copied_stream_keeps_data_and_keys(spark, kinesis, tmp_path):
    source, target = kinesis("copied"), kinesis("copy", 3)
    source.put(1000)
    write_stream(source.load(spark, tmp_path), target, tmp_path, trigger=NOW).awaitTermination()
    put = [(record.partition_key, json.loads(record.data)["n"]) for record in target.records()]
    assert sorted(put, key=lambda one: one[1]) == [(f"key-{n}", n) for n in range(1000)]


def test_rows_go_as_aggregates_to_the_streams_that_a_column_names(spark, kinesis):
    even, odd = kinesis("even", 2), kinesis("odd", 1)
    rows = spark.range(1000).selectExpr("cast(id as string) data", "if(id % 2 = 0, 'even', 'odd') stream")
    write_rows(rows, even, stream=None, AggregationEnabled=True)
    for stream, first in ((even, 0), (odd, 1)):
        read = stream.records()
        assert sorted(int(record.data) for record in read) == list(range(first, 1000, 2))
        assert len({record.sequence_number for record in read}) < 50
    assert len({record.shard_id for record in even.records()}) == 2  # rows without keys are spread


def test_a_repeated_batch_puts_repeats_that_a_consumer_can_drop(spark, kinesis, tmp_path):
    target = kinesis("failing")
    failed = tmp_path / "failed"

    class FailingWriter(KinesisStreamWriter):
        def write(self, iterator):
            written = super().write(iterator)
            if not failed.exists():
                failed.touch()
                raise OSError("after the rows")
            return written

    class FailingOnce(KinesisSource):
        @classmethod
        def name(cls):
            return "failing"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            return FailingWriter(WriteOptions.parse(self.options), schema)

    spark.dataSource.register(FailingOnce)
    rows = numbered(spark, 1000).selectExpr("to_json(struct(value n)) data", "cast(value % 7 as string) partitionKey")
    with pytest.raises(Exception, match="after the rows"):
        write_stream(rows, target, tmp_path, "failing", trigger=NOW, idField="rowId").awaitTermination()
    write_stream(rows, target, tmp_path, "failing", trigger=NOW, idField="rowId").awaitTermination()
    records = target.records()
    rows = sorted(row["n"] for row in dropped_repeats(records))
    assert len(records) > len(rows) >= 1000
    assert rows == list(range(len(rows)))


def test_writes_in_foreach_batch_have_the_same_ids_when_the_batch_runs_again_and_share_none(spark, kinesis, tmp_path):
    target = kinesis("foreach")
    failed = tmp_path / "failed"

    def write_twice(rows, batch):
        for _ in range(2):
            write_rows(rows.selectExpr("to_json(struct(value n)) data"), target, idField="rowId")
        if not failed.exists():
            failed.touch()
            raise OSError("after the rows")

    writer = numbered(spark, 100).writeStream.foreachBatch(write_twice)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**NOW)
    with pytest.raises(Exception, match="after the rows"):
        writer.start().awaitTermination()
    writer.start().awaitTermination()
    records = target.records()
    rows = sorted(row["n"] for row in dropped_repeats(records))
    assert len(records) == len(rows) + 200  # those of the batch that ran again
    assert rows == [n for n in range(len(rows) // 2) for _ in range(2)]


def test_a_row_that_can_never_be_written_is_a_dead_letter_and_the_query_goes_on(spark, kinesis, tmp_path):
    target = kinesis("letters")
    rows = numbered(spark, 100).selectExpr("if(value % 50 = 7, repeat('x', 1100000), cast(value as string)) data")
    folder = tmp_path / "letters"
    query = write_stream(rows, target, tmp_path, trigger=NOW, deadLetters=folder)
    query.awaitTermination()
    letters = [json.loads(line) for file in folder.glob("letters/*/*.jsonl") for line in file.read_text().splitlines()]
    assert (len(target.records()), len(letters)) == (98, 2)
    assert all("data and key have" in letter["value"]["error"] for letter in letters)


def test_a_throttled_shard_slows_the_query_and_loses_nothing(spark, tmp_path):
    """A shard takes 1,000 records at once and 1,000 a second from then on (service limits)."""
    with serve_in_thread(quotas=Quotas.service()) as served:
        target = Kinesis(served, "slow", 1)
        rows = numbered(spark, 4000).selectExpr("cast(value as string) data")
        limit = {"flink.sink.kinesis.queue.limit": 500}
        query = write_stream(rows, target, tmp_path, trigger=NOW, writeTasks=2, **limit)
        query.awaitTermination()
        assert sorted(int(record.data) for record in target.records()) == list(range(4000))
    assert query.lastProgress["durationMs"]["addBatch"] > 2500


def numbered(spark, count):
    """A stream of one batch with the same rows in every run: `value` from 0 up, in two tasks."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).option("numPartitions", 2)
    return rows.load()


@pytest.mark.parametrize(
    ("expression", "options", "words"),
    [
        ("id data", {}, "column 'data' has the type BIGINT. Valid: BINARY or STRING"),
        ("cast(id as string) data", {"flink.sink.kinesis.ordering": "ALL"}, "NONE, PER_KEY"),
        ("cast(id as string) data", {"idField": "id"}, r"task \d: idField adds 'id' to a JSON object"),
    ],
)
def test_c2_an_error_says_what_is_valid(spark, kinesis, expression, options, words):
    target = kinesis(f"wrong-{abs(hash(words))}")
    with pytest.raises(Exception, match=words):
        write_rows(spark.range(1).selectExpr(expression), target, **options)
    assert target.records() == []


def test_c2_a_missing_target_is_an_error_before_any_task_starts(spark, kinesis):
    target = kinesis("there")
    with pytest.raises(Exception, match="Failed to initialize Python data source writer") as raised:
        write_rows(spark.range(1).selectExpr("cast(id as string) data"), target, stream="not-there")
    assert "stream 'not-there' does not exist in " in str(raised.value)


def test_a_stream_cannot_be_overwritten(spark, kinesis):
    with pytest.raises(Exception, match=r"records cannot be removed from a stream\. Valid: append"):
        write_rows(spark.range(1).selectExpr("cast(id as string) data"), kinesis("overwritten"), mode="overwrite")
