"""The Kinesis Client Library for Java on the embedded endpoint, with its leases in moto: a worker reads through a split and a merge."""

import subprocess
from contextlib import contextmanager

import boto3
import pytest

from recordpublisher.local import serve_in_thread

from compare.tools import copied, java_command, require
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]
FIRST, SECOND, CHILD = (f"shardId-{number:012d}" for number in (0, 1, 3))


@contextmanager
def worker(*command):
    """The lines that a worker prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("application", ["polling", "fan-out"])
def test_a_worker_reads_every_record_once_through_a_split_and_a_merge(application, tmp_path):
    require("mvn")
    command = java_command(copied("kcl", tmp_path), "Work.java")
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint, serve_moto() as dynamodb:
        access = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        kinesis = boto3.client("kinesis", endpoint_url=endpoint.url, **access)
        expected, found = set(), []
        with worker(*command, endpoint.url, dynamodb, "orders", application) as lines:

            def put_and_read():
                for number in range(len(expected), len(expected) + 20):
                    kinesis.put_record(StreamName="orders", PartitionKey=str(number), Data=b"%d" % number)
                    expected.add(number)
                while len(found) < len(expected):
                    shard, number = next(lines).split()
                    found.append((shard, int(number)))

            put_and_read()
            kinesis.split_shard(StreamName="orders", ShardToSplit=FIRST, NewStartingHashKey=str(2**126))
            put_and_read()
            kinesis.merge_shards(StreamName="orders", ShardToMerge=CHILD, AdjacentShardToMerge=SECOND)
            put_and_read()
        kinesis.close()
    assert sorted(number for _, number in found) == sorted(expected)
    assert len({shard for shard, _ in found}) == 5
