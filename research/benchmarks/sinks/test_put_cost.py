"""CPU per record put: KinesisSink next to boto3 and to async-kinesis's producer, in one run (`make bench`)."""

from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import PEERS, micros_of, output_of_peer, put_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

RECORDS, FEW, ROUNDS = 150_000, 30_000, 3


@pytest.mark.parametrize(("how", "at_most"), [("put", 4.0), ("write", 4.0), ("aggregated", None)])
def test_next_to_boto3(table, how, at_most):
    ours, theirs = [], []
    with put_server() as url:
        for _ in range(ROUNDS):
            ours.append(micros_of("clients/sinks/sink_client.py", url, how, RECORDS))
            theirs.append(micros_of("clients/sinks/boto3_put_client.py", url, "put", FEW))
    table.append(Row(f"Kinesis sink, 200 B, {how}", median(ours), median(theirs), at_most, 2, section="writing"))


@pytest.mark.parametrize("how", ["plain", "ids", "aggregated"])
def test_a_task_of_sparks_writer_next_to_boto3(table, how):
    """Without what Spark itself does; no goal is set."""
    with put_server() as url:
        ours = median([micros_of("clients/sinks/spark_write_client.py", url, how, RECORDS) for _ in range(ROUNDS)])
        theirs = median([micros_of("clients/sinks/boto3_put_client.py", url, "put", FEW) for _ in range(ROUNDS)])
    table.append(Row(f"Spark writer, 200 B, {how}", ours, theirs, section="writing"))


@pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers")
def test_next_to_async_kinesis(table):
    with put_server() as url:
        ours = median([micros_of("clients/sinks/sink_client.py", url, "put", RECORDS) for _ in range(ROUNDS)])
        theirs = float(output_of_peer("async_kinesis_put_client.py", url, "put", FEW))
    table.append(Row("Kinesis sink, 200 B, put", ours, theirs, None, 5, "async-kinesis", "writing"))
