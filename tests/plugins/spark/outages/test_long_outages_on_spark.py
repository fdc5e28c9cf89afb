"""Queries on a real Spark that begin in an outage, or are overtaken by one: nothing is lost, repeated or ended."""

from __future__ import annotations

import pytest

from servers.moto_server import serve_moto
from spark_jobs.queries import WAIT_SECONDS, numbers, outage_of, to_parquet, wait_for_rows, wait_until
from spark_jobs.tcp_switch import switch_before

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * WAIT_SECONDS)]


@pytest.fixture
def switch(served):
    """Before the endpoint: queries use `switch.url`, while the tests' records go to the endpoint itself."""
    with switch_before(served.url) as made:
        yield made


def test_a_new_query_waits_for_an_endpoint_that_it_never_reached(spark, kinesis, tmp_path, switch):
    stream = kinesis("new-query")
    stream.put(300)
    switch.turn_off()
    query = to_parquet(stream.load(spark, tmp_path, **{"aws.endpoint": switch.url}), tmp_path)
    wait_until(query, lambda: outage_of(query) is not None)
    assert "'aws.endpoint'" in outage_of(query)["error"]
    switch.turn_on()
    wait_for_rows(query, 300)
    query.stop()
    assert numbers(spark, tmp_path) == list(range(300))


def test_an_available_now_query_that_begins_in_an_outage_reads_everything(spark, kinesis, tmp_path, switch):
    stream = kinesis("begins-away")
    stream.put(300)
    switch.turn_off()
    query = to_parquet(stream.load(spark, tmp_path, **{"aws.endpoint": switch.url}), tmp_path, availableNow=True)
    wait_until(query, lambda: query.lastProgress is not None)  # a batch without tasks
    switch.turn_on()
    assert query.awaitTermination(WAIT_SECONDS)
    assert numbers(spark, tmp_path) == list(range(300))


def test_an_available_now_query_that_is_overtaken_by_an_outage_reads_everything(spark, kinesis, tmp_path, switch):
    stream = kinesis("overtaken")
    stream.put(300)

    def write(batch, number):
        batch.write.mode("append").parquet(str(tmp_path / "out"))
        if number == 0:
            switch.turn_off()

    options = {"aws.endpoint": switch.url, "maxRecordsPerBatch": 100}
    writer = stream.load(spark, tmp_path, **options).writeStream.foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(query, lambda: outage_of(query) is not None)
    assert outage_of(query)["service"] == "Kinesis"
    switch.turn_on()
    assert query.awaitTermination(WAIT_SECONDS)
    assert numbers(spark, tmp_path) == list(range(300))


def test_a_query_waits_for_the_store_of_its_claims(spark, kinesis, tmp_path):
    stream = kinesis("claims-away")
    stream.put(300)
    with serve_moto() as url, switch_before(url) as store:

        def write(batch, number):
            batch.write.mode("append").parquet(str(tmp_path / "out"))
            if number == 0:  # between two batches: the planner meets the outage, and progress shows it
                store.turn_off()

        options = {"metadataLocation": "s3://bucket/claims", "flink.state.endpoint": store.url}
        writer = stream.load(spark, tmp_path, **options).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        wait_until(query, lambda: outage_of(query) is not None)
        assert outage_of(query)["service"] == "the store of claims"
        stream.put(200)
        store.turn_on()
        wait_for_rows(query, 500)
        query.stop()
    assert numbers(spark, tmp_path) == list(range(500))
