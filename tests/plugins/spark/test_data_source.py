"""`format("kinesis")` on a real Spark: exactly once through splits, restarts, several actions and lost claims."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest

import recordpublisher as rp
from recordpublisher.plugins.spark.efo_consumers import register_consumers

from spark_jobs.queries import WAIT_SECONDS, numbers, rows_so_far, to_parquet, wait_for_rows, wait_until_quiet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}


@pytest.mark.sample
def test_columns_are_those_of_the_contract(spark, kinesis, tmp_path):
    stream = kinesis("columns")
    stream.put(1, lambda n: 1_700_000_000_123)
    rows = []
    frame = stream.load(spark, tmp_path)
    query = frame.writeStream.foreachBatch(lambda df, batch: rows.extend(df.collect())).trigger(**NOW).start()
    query.awaitTermination()
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema][:-1] == [
        "stream string",
        "shardId string",
        "partitionKey string",
        "explicitHashKey string",
        "sequenceNumber string",
        "subSequenceNumber bigint",
        "approximateArrivalTimestamp timestamp",
        "eventTime timestamp",
        "data binary",
    ]
    (row,) = rows
    assert (row.stream, row.partitionKey, row.explicitHashKey, row.subSequenceNumber) == ("columns", "key-0", None, -1)
    assert row.data == b'{"n": 0, "at": 1700000000123}'
    assert row.eventTime.timestamp() == 1_700_000_000.123


def test_every_record_once_through_a_split_and_a_restart(spark, kinesis, tmp_path):
    stream = kinesis("split")
    stream.put(3000)
    query = to_parquet(stream.load(spark, tmp_path), tmp_path)
    wait_for_rows(query, 3000)
    stream.split(0)
    stream.put(2000)
    wait_for_rows(query, 5000)
    query.stop()
    stream.put(1000)
    again = to_parquet(stream.load(spark, tmp_path), tmp_path)
    wait_for_rows(again, 1000)
    again.stop()
    assert numbers(spark, tmp_path) == list(range(6000))
    offset = json.loads(again.lastProgress["sources"][0]["endOffset"])
    assert len(offset["shards"]) == 3  # the split shard has left the offset


@pytest.mark.slow
def test_every_record_once_by_fan_out_through_a_split(spark, kinesis, tmp_path):
    stream = kinesis("fan-out")
    stream.put(1000)
    fan_out = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "spark"}
    properties = {**stream.served.endpoint.properties(), **fan_out}
    progress = rp.spark.ProgressListener("127.0.0.1:0")
    listeners = (progress, rp.spark.ConsumerDeregistration(stream.name, properties, query="fan-out"))
    for listener in listeners:
        spark.streams.addListener(listener)
    query = to_parquet(stream.load(spark, tmp_path, **fan_out), tmp_path, "fan-out")
    wait_for_rows(query, 1000)
    stream.split(1)
    stream.put(500)
    wait_for_rows(query, 1500)
    while not continues(query):  # A shard whose first subscription was refused on a busy machine gets its event later.
        stream.put(10)
        wait_for_rows(query, stream.count)
        wait_until_quiet(query)
    with urlopen(progress.url) as page:
        assert re.search(
            r'recordpublisher_spark_records_total{query="fan-out",source="0"} 1\d\d\d\n', page.read().decode()
        )
    assert names_of_consumers(stream) == ["spark"]
    query.stop()
    wait_until_no_consumer_is_left(stream)
    for listener in listeners:
        spark.streams.removeListener(listener)
    progress.close()
    assert numbers(spark, tmp_path) == list(range(stream.count))


def continues(query):
    """Whether each shard was read by fan-out and continues after its last event, which has no record if the shard is quiet (F6)."""
    shards = json.loads(query.lastProgress["sources"][0]["endOffset"])["shards"].values()
    return all("continuation" in shard["state"] for shard in shards)


def test_a_quiet_stream_runs_no_batches_and_a_record_ends_the_pause(spark, kinesis, tmp_path):
    stream = kinesis("quiet", 4)
    stream.put(100)
    query = to_parquet(stream.load(spark, tmp_path), tmp_path)
    wait_for_rows(query, 100)
    wait_until_quiet(query)
    wait_until_no_batch_is_run(query, 5)
    figures = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert (figures["shards"], figures["atTip"], figures["records"], figures["millisBehindLatest"]) == (4, 4, 100, 0)
    stream.put(1)
    wait_for_rows(query, 101)
    query.stop()
    assert numbers(spark, tmp_path) == list(range(101))
    batches = [progress["numInputRows"] for progress in query.recentProgress if "addBatch" in progress["durationMs"]]
    assert batches.count(0) == 1, batches  # the one that shows the figures


def test_available_now_stops_at_the_tip_and_the_next_run_continues_there(spark, kinesis, tmp_path):
    stream = kinesis("now", 3)
    for count, columns in ((500, None), (300, "data BINARY, shardId STRING")):
        stream.put(count)
        frame = stream.load(spark, tmp_path, columns, maxRecordsPerBatch=200, metadataRoot=tmp_path / "root")
        query = to_parquet(frame, tmp_path, **NOW)
        query.awaitTermination()
        assert rows_so_far(query) == count
        assert all(progress["numInputRows"] <= 200 for progress in query.recentProgress)
    assert numbers(spark, tmp_path) == list(range(800))
    assert len(list((tmp_path / "root").glob("*/0*"))) > 1
    assert len({claims.parent for claims in (tmp_path / "root").glob("*/0*")}) == 1  # the second run found its id again


def test_two_actions_on_one_batch_see_the_same_rows_while_more_arrive(spark, kinesis, tmp_path):
    stream = kinesis("actions")
    stream.put(400)
    seen: list[tuple[list[int], list[int]]] = []

    def two_actions(frame, batch):
        first = sorted(row.n for row in frame.select("n").collect())
        stream.put(50)
        seen.append((first, sorted(row.n for row in frame.select("n").collect())))

    query = stream.load(spark, tmp_path).writeStream.foreachBatch(two_actions).trigger(**NOW).start()
    query.awaitTermination()
    assert seen
    assert all(first == second for first, second in seen)
    assert seen[0][0][:400] == list(range(400))


def test_concurrent_jobs_over_one_batch_see_the_same_rows(spark, kinesis, tmp_path):
    stream = kinesis("concurrent")
    stream.put(400)
    seen: list[list[list[int]]] = []

    def two_jobs_at_once(frame, batch):
        def numbers_of(_):
            rows = sorted(row.n for row in frame.select("n").collect())
            stream.put(25)
            return rows

        with ThreadPoolExecutor(2) as pool:
            seen.append(list(pool.map(numbers_of, range(2))))

    # one task, so that both jobs have a slot and race for the claim
    frame = stream.load(spark, tmp_path, maxTasks=1)
    query = frame.writeStream.foreachBatch(two_jobs_at_once).trigger(**NOW).start()
    query.awaitTermination()
    assert all(first == second for first, second in seen)
    rows = [number for first, _ in seen for number in first]
    assert len(rows) == len(set(rows))
    assert set(rows) >= set(range(400))


def test_nothing_is_lost_when_the_claims_are(spark, kinesis, tmp_path):
    stream = kinesis("lost-claims")
    stream.put(500)
    to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW).awaitTermination()
    shutil.rmtree(tmp_path / "metadata")
    stream.put(500)
    with pytest.raises(Exception, match=r"metadataLocation .* has no claims .* of this query"):
        to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW).awaitTermination()
    assert numbers(spark, tmp_path) == list(range(500))
    to_parquet(stream.load(spark, tmp_path, onMetadataLoss="REPLAY"), tmp_path, **NOW).awaitTermination()
    assert set(numbers(spark, tmp_path)) == set(range(1000))


def test_nothing_is_lost_with_the_claims_of_a_batch_that_only_the_sink_has_committed(spark, kinesis, tmp_path):
    stream = kinesis("lost-uncommitted")
    stream.put(500)
    taken: dict[int, list[int]] = {}

    def take(frame, batch, dies=False):
        rows = [row.n for row in frame.select("n").collect()]
        taken.setdefault(batch, rows)  # it ignores a batch that it has
        if dies:
            raise RuntimeError("after the sink has the batch")

    def run(dies):
        frame = stream.load(spark, tmp_path, onMetadataLoss="REPLAY")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(lambda frame, batch: take(frame, batch, dies)).trigger(**NOW).start()

    with pytest.raises(Exception, match="after the sink has the batch"):
        run(dies=True).awaitTermination()
    shutil.rmtree(tmp_path / "metadata")
    stream.put(500)
    run(dies=False).awaitTermination()
    assert len(taken[0]) == 500
    assert {number for rows in taken.values() for number in rows} == set(range(1000))


def test_event_times_of_a_batch_lie_within_the_lookahead(spark, kinesis, tmp_path):
    stream = kinesis("aligned", 2)
    stream.put(600, lambda n: n * 100, shard=0)
    stream.put(600, lambda n: 30_000 + (n - 600) * 100, shard=1)
    spreads: Counter[int] = Counter()

    def spread(frame, batch):
        times = [round(row.eventTime.timestamp() * 1000) for row in frame.select("eventTime").collect()]
        if times:
            spreads[batch] = max(times) - min(times)

    aligned = {"flink.watermark.lookahead.millis": 20_000, "flink.shard.idle.interval": 1000}
    frame = stream.load(spark, tmp_path, **aligned)
    query = frame.writeStream.foreachBatch(spread).trigger(**NOW).start()
    query.awaitTermination()
    assert rows_so_far(query) == 1200
    assert max(spreads.values()) <= 20_000
    offsets = [json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress]
    values = [offset["globalWatermark"] for offset in offsets if "globalWatermark" in offset]
    assert values == sorted(values)
    assert max(shard.get("held", {}).get("batches", 0) for shard in offsets[-1]["shards"].values()) > 0


async def test_f8_a_consumer_is_deregistered_by_the_helper_and_not_by_the_query(spark, kinesis, tmp_path):
    stream = kinesis("registered")
    properties = {**stream.served.endpoint.properties(), "flink.stream.efo.consumername": "mine"}
    register_consumers([stream.name], rp.Properties(properties))
    assert names_of_consumers(stream) == ["mine"]
    options = {**stream.served.endpoint.properties(), "consumerMode": "efo", "kinesis.consumerName": "mine"}
    rp.spark.deregister_consumers(stream.name, options)
    rp.spark.deregister_consumers(stream.name, options)
    wait_until_no_consumer_is_left(stream)


def wait_until_no_batch_is_run(query, seconds):
    """Wait until no batch has run for this long. A slow machine may need one more to reach the tips of all shards."""
    deadline = time.monotonic() + WAIT_SECONDS
    batch, since = query.lastProgress["batchId"], time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < deadline, f"batches go on and on: {batch}"
        time.sleep(0.2)
        if query.lastProgress["batchId"] != batch:
            batch, since = query.lastProgress["batchId"], time.monotonic()


def wait_until_no_consumer_is_left(stream):
    """A deregistered consumer is DELETING for a moment."""
    while names_of_consumers(stream):
        time.sleep(0.01)


def names_of_consumers(stream):
    return stream.served.call(lambda: [consumer.name for consumer in stream.stream.consumers.all()])
