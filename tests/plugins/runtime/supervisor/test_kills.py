"""A whole job killed with kill -9 again and again, while its stream is split: every row exactly once, in order (S1, S2, S6)."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import boto3
import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT

JOB = ROOT / "tests/processes/transactional_job.py"
RECORDS, ROUNDS = 12_000, 5


def client(url):
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    return boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **keys)


def put(kinesis, numbers):
    entries = [{"Data": str(number).encode(), "PartitionKey": str(number % 97)} for number in numbers]
    for start in range(0, len(entries), 500):
        kinesis.put_records(StreamName="orders", Records=entries[start : start + 500])


def split(kinesis):
    shard = kinesis.list_shards(StreamName="orders", ShardFilter={"Type": "AT_LATEST"})["Shards"][0]
    low, high = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    middle = str((low + high) // 2)
    kinesis.split_shard(StreamName="orders", ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)


def rows_of(path):
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as database:
        return database.execute("select shard, sequence, payload from rows order by rowid").fetchall()


def wait_for_rows(path, count, seconds=120.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if len(rows_of(path)) >= count:
                return
        except sqlite3.OperationalError:
            pass
        time.sleep(0.1)
    pytest.fail(f"{len(rows_of(path))} of {count} rows after {seconds} s")


@pytest.mark.kills
@pytest.mark.timeout(600)
@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_a_killed_job_continues_exactly_after_its_last_transaction(tmp_path, publisher):
    path = tmp_path / "rows.sqlite"
    with serve_in_thread(streams={"orders": 2}) as endpoint:
        kinesis = client(endpoint.url)
        for number in range(ROUNDS):
            share = RECORDS // ROUNDS
            put(kinesis, range(number * share, (number + 1) * share))
            job = subprocess.Popen([sys.executable, str(JOB), endpoint.url, str(path), publisher])
            wait_for_rows(path, number * share + share // 3)
            if number in (1, 3):
                split(kinesis)
            if number < ROUNDS - 1:
                job.kill()
                job.wait()
        wait_for_rows(path, RECORDS)
        time.sleep(1)
        job.kill()
        job.wait()

    rows = rows_of(path)
    assert sorted(int(payload) for _, _, payload in rows) == list(range(RECORDS))
    for shard in {shard for shard, _, _ in rows}:
        sequences = [int(sequence) for each, sequence, _ in rows if each == shard]
        assert sequences == sorted(sequences)
    for key in range(97):
        numbers = [int(payload) for _, _, payload in rows if int(payload) % 97 == key]
        assert numbers == sorted(numbers), "a child was read before its parent"
