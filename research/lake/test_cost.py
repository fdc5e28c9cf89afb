"""The requests that the page of costs counts with are those that a local S3 server gets."""

import os
from collections import Counter

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import CommitNumber

import servers.moto_server
from fakes.batches import batch
from lake.cost import firehose_of_terabyte, of_terabyte, requests_of_commit
from servers.moto_server import KEYS, serve_moto

CASES = [("delta", 1), *(pytest.param(table, 24, marks=pytest.mark.slow) for table in ("delta", "iceberg"))]


def properties_of(table, url, folder):
    if table == "delta":
        return {
            "flink.sink.delta.uri": f"s3://bucket/{folder.name}",
            "flink.state.endpoint": url,
            "aws.region": "us-east-1",
            **KEYS,
        }
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://bucket/{folder.name}",
        "s3.endpoint": url,
    }
    catalog |= {"s3.access-key-id": "a", "s3.secret-access-key": "s", "s3.region": "us-east-1"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    return {**given, "flink.sink.iceberg.table": "lake.orders", "flink.state.uri": str(folder)}


@pytest.mark.parametrize(("table", "megabytes"), CASES)
async def test_a_commit_makes_the_requests_that_are_counted(table, megabytes, tmp_path, monkeypatch):
    counted = Counter()

    def counting(app, one_at_a_time=servers.moto_server.one_at_a_time):
        def counted_app(environ, start):
            is_list = "list-type" in environ.get("QUERY_STRING", "")
            counted["LIST" if is_list else environ["REQUEST_METHOD"]] += 1
            return locked(environ, start)

        locked = one_at_a_time(app)
        return counted_app

    monkeypatch.setattr(servers.moto_server, "one_at_a_time", counting)
    with serve_moto() as url:
        sink = {"delta": rp.DeltaSink, "iceberg": rp.IcebergSink}[table](properties_of(table, url, tmp_path))
        await sink.open(rp.SinkContext())
        for n in (1, 2):
            counted.clear()
            await sink.write(batch(*(os.urandom(100_000) for _ in range(10 * megabytes))))
            await sink.publish([await sink.stage(CommitNumber("job/0", n))])
        await sink.close()

    found = counted["PUT"] + counted["POST"] + counted["LIST"], counted["GET"] + counted["HEAD"]
    writes, reads = requests_of_commit(table, megabytes, log_entries=3)
    assert found[0] == writes
    assert reads - 3 <= found[1] <= reads + 1


def test_longer_intervals_and_fewer_workers_cost_less():
    assert of_terabyte("delta", 10, 1, 60).dollars < of_terabyte("delta", 10, 1, 10).dollars
    assert of_terabyte("delta", 100, 1, 60).dollars < of_terabyte("delta", 100, 4, 60).dollars


def test_firehose_counts_records_into_s3_as_multiples_of_5_kib_and_those_into_iceberg_as_they_are():
    assert firehose_of_terabyte("parquet", 5_120) == pytest.approx(47 * 10**12 / 2**30 / 1_000, rel=1e-3)
    assert firehose_of_terabyte("parquet", 1_024) == pytest.approx(5 * firehose_of_terabyte("parquet", 5_120))
    assert firehose_of_terabyte("parquet", 5_121) == pytest.approx(2 * firehose_of_terabyte("parquet", 5_120), rel=1e-3)
    assert firehose_of_terabyte("iceberg", 200) == firehose_of_terabyte("iceberg", 5_000) == pytest.approx(45, rel=1e-3)
    assert firehose_of_terabyte("iceberg", 200, dollars_a_gb=0.1) == pytest.approx(100)
