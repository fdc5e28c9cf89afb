"""Positions moved from the real KCL to a job and back: it reads the first records, the job the next ones, it the rest; each once.

The last part is read by another application, from a table that the export makes: in the first one the KCL would wait for minutes until the
leader that was killed is replaced.
"""

import asyncio
import time

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from compare.records import ACCESS, worker
from compare.tools import copied, java_command, require
from processes.command_line import command
from servers.kpl_aggregates import aggregate
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]


class Records:
    """Puts numbers into both shards: in each an aggregate, then records of their own. Knows the last sequence number of each shard."""

    def __init__(self, kinesis):
        self.kinesis = kinesis
        self.numbers = []
        self.last = {}

    def put(self):
        for hash_key in ("0", str(2**127)):
            first = len(self.numbers)
            self.numbers += range(first, first + 20)
            parts = [("key", b"%d" % number, hash_key) for number in range(first, first + 10)]
            for data in (aggregate(*parts), *(b"%d" % number for number in range(first + 10, first + 20))):
                done = self.kinesis.put_record(
                    StreamName="orders", PartitionKey="key", ExplicitHashKey=hash_key, Data=data
                )
                self.last[done["ShardId"]] = done["SequenceNumber"]


def checkpoints(dynamodb, table):
    """Of the leases: the table has rows of workers too."""
    rows = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    return {row["leaseKey"]["S"]: row["checkpoint"]["S"] for row in rows if "checkpoint" in row}


def read_by_job(properties, count):
    async def run():
        sink = rp.MemorySink()
        async with rp.DataFetcher(["orders"], properties, sink=sink) as fetcher:
            await fetcher.run_bounded(max_records=count, max_time=300)
        return [int(record.data) for record in sink.records]

    return asyncio.run(run())


@pytest.mark.parametrize("assignment", ["ALONE", "GROUP"])
def test_every_record_is_read_once_by_the_kcl_the_job_and_the_kcl_again(tmp_path, assignment):
    require("mvn")
    java = java_command(copied("kcl", tmp_path), "Work.java")
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint, serve_moto() as moto:
        kinesis, dynamodb = (
            boto3.client(name, endpoint_url=url, **ACCESS)
            for name, url in (("kinesis", endpoint.url), ("dynamodb", moto))
        )
        job = tmp_path / "job.properties"
        given = {
            **endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.state.uri": str(tmp_path / "state"),
            "flink.state.endpoint": moto,
            "flink.job.workers": assignment,
        }
        job.write_text("\n".join(f"{key}={value}" for key, value in given.items()))
        move = (str(job), "--apply", "--watch", "5")
        records, found = Records(kinesis), []

        def read_by_kcl(application):
            with worker(*java, endpoint.url, moto, "orders", application) as lines:
                while len(found) < len(records.numbers):
                    found.append(int(next(lines).split()[1]))
                while checkpoints(dynamodb, application) != records.last:
                    time.sleep(0.1)

        records.put()
        read_by_kcl("polling")
        done = command("positions", "import", *move, "--from", "kcl:polling")
        assert done.returncode == 0, done.stderr

        records.put()
        found += read_by_job(rp.Properties(given), len(records.numbers) - len(found))
        assert sorted(found) == records.numbers
        done = command("positions", "export", *move, "--to", "kcl:fan-out")
        assert done.returncode == 0, done.stderr

        records.put()
        read_by_kcl("fan-out")
        kinesis.close()
        dynamodb.close()
    assert sorted(found) == records.numbers
