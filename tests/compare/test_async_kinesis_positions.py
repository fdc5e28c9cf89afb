"""Positions moved from the real async-kinesis to a job and back: it reads the first records, the job the next ones, it the rest; each once.

The stream is split while the job reads it. The last part is read by another application, from a table that the export makes.
"""

import subprocess

import boto3
import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.properties.properties import Properties

from compare.test_kcl_positions import read_by_job
from compare.tools import HERE
from processes.command_line import command
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(300)]
PYTHON = HERE.parents[1] / ".venvs/async-kinesis/bin/python"
KEYS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "us-east-1"}


class Records:
    """Puts numbers, some into each open shard."""

    def __init__(self, stream):
        self._stream = stream
        self.numbers = []

    def put(self):
        for _ in range(20):
            self._stream.put(str(len(self.numbers)))
            self.numbers.append(len(self.numbers))


def read_by_async_kinesis(endpoint, moto, name, count):
    """Read at least this many records, then close the consumer, which stores what was read."""
    arguments = [endpoint.url, moto, "orders", name, str(count)]
    done = subprocess.run(
        [PYTHON, HERE / "async_kinesis/consume.py", *arguments],
        env=KEYS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_every_record_is_read_once_by_async_kinesis_the_job_and_async_kinesis_again(tmp_path):
    if not PYTHON.exists():
        pytest.skip("make compare makes an environment with async-kinesis")
    with serve_in_thread(streams={"orders": 2}) as endpoint, serve_moto() as moto:
        job = tmp_path / "job.properties"
        given = {
            **endpoint.endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.state.uri": str(tmp_path / "state"),
            "flink.state.endpoint": moto,
        }
        job.write_text("\n".join(f"{key}={value}" for key, value in given.items()))
        move = (str(job), "--apply", "--watch", "2")
        records = Records(endpoint.stream("orders"))

        records.put()
        found = read_by_async_kinesis(endpoint, moto, "before", len(records.numbers))
        done = command("positions", "import", *move, "--from", "async-kinesis:kinesis-checkpoints-before")
        assert done.returncode == 0, done.stderr

        records.put()
        kinesis = boto3.client(
            "kinesis",
            endpoint_url=endpoint.url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="s",
        )
        kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
        kinesis.get_waiter("stream_exists").wait(StreamName="orders")
        kinesis.close()
        records.put()
        found += read_by_job(Properties(given), len(records.numbers) - len(found))
        assert sorted(found) == records.numbers
        done = command("positions", "export", *move, "--to", "async-kinesis://kinesis-checkpoints-after")
        assert done.returncode == 0, done.stderr

        records.put()
        found += read_by_async_kinesis(endpoint, moto, "after", len(records.numbers) - len(found))
    assert sorted(found) == records.numbers
