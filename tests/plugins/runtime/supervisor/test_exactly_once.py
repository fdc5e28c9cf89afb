"""A stream into PostgreSQL and into files while processes are killed and suspended: every row exactly once, in order (S1, S2, S6)."""

import json
import math
import os
import random
import threading
import time
from contextlib import contextmanager

import boto3
import pytest

from recordpublisher.local import serve_in_thread

from processes.job_files import job_file
from processes.process_faults import FAULTS, FaultInjectedJob
from processes.written_rows import WrittenFiles, WrittenTable
from servers.postgresql import serve_postgresql

ROUNDS = int(os.environ.get("RECORDPUBLISHER_ROUNDS", "16"))
SECONDS = float(os.environ.get("RECORDPUBLISHER_SECONDS", "inf"))
PAUSE = float(os.environ.get("RECORDPUBLISHER_ROUND_SECONDS", "1.5"))
KEYS = 97


class Producer(threading.Thread):
    """Puts numbered records, a few hundred a second, and injects faults, until it is stopped."""

    def __init__(self, endpoint, chance):
        super().__init__(daemon=True)
        self._endpoint, self._chance = endpoint, chance
        self._stopping = threading.Event()
        self.count = 0

    def run(self):
        while not self._stopping.wait(0.1):
            self._endpoint.call(self._put, 30)
            if self._chance.random() < 0.15:
                self._endpoint.call(self._chance.choice(FAULTS), self._endpoint.endpoint.faults)

    def stop(self):
        self._stopping.set()
        self.join()

    def _put(self, number):
        for _ in range(number):
            document = {"number": self.count, "key": self.count % KEYS}
            self._endpoint.endpoint.stream("orders").put(json.dumps(document).encode(), str(self.count % KEYS))
            self.count += 1


def split_one(endpoint):
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    kinesis = boto3.client("kinesis", endpoint_url=endpoint.url, region_name="us-east-1", **keys)
    shard = kinesis.list_shards(StreamName="orders", ShardFilter={"Type": "AT_LATEST"})["Shards"][0]
    low, high = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    kinesis.split_shard(StreamName="orders", ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2))


def wait_for(rows, count, job, seconds=90):
    deadline = time.monotonic() + seconds
    while (seen := rows.count()) < count:
        job.keep_running()
        assert time.monotonic() < deadline, f"{seen} of {count} rows after {seconds} s"
        time.sleep(0.05)


@contextmanager
def written(sink, folder):
    if sink == "jsonl":
        yield WrittenFiles(folder / "files")
        return
    with serve_postgresql() as uri:
        yield WrittenTable(uri)


def strikes_on(job, rows, is_alone):
    strikes = {"kill": job.kill_supervisor, "suspend and replace": job.suspend_and_replace, "drain": job.drain}
    if not is_alone:
        strikes |= {"kill a worker": job.kill_worker, "kill everything": job.kill_everything}
    return strikes | ({"cut the connections": rows.cut_connections} if isinstance(rows, WrittenTable) else {})


@pytest.mark.sinks
@pytest.mark.parametrize("workers", ["GROUP", "ALONE"])
@pytest.mark.parametrize(("sink", "share"), [("sql", 1.0), ("jsonl", 0.4)])
@pytest.mark.timeout(120 + 30 * ROUNDS)
def test_every_row_exactly_once(tmp_path, sink, share, workers):
    seed = int(os.environ.get("RECORDPUBLISHER_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    began, struck = time.monotonic(), []
    with written(sink, tmp_path) as rows, serve_in_thread(streams={"orders": 4}) as endpoint:
        producer = Producer(endpoint, chance)
        producer.start()
        given = properties(endpoint) | rows.properties() | {"flink.job.workers": workers}
        is_alone = workers == "ALONE"
        job = FaultInjectedJob(job_file(tmp_path, given), (1,) if is_alone else (2, 2, 3), chance)
        strikes = strikes_on(job, rows, is_alone)
        try:
            wait_for(rows, 1, job)  # a start that is suspended before it takes the shards replaces the next one later
            for number in range(math.ceil(ROUNDS * share)):
                if time.monotonic() - began > SECONDS * share:
                    break
                if number % len(strikes) == 0:
                    order = chance.sample(list(strikes), len(strikes))
                name = order[number % len(strikes)]
                struck.append(name)
                strikes[name]()
                if number % 7 == 3:
                    split_one(endpoint)
                wait_for(rows, rows.count() + 1, job)
                job.wake()
                time.sleep(chance.uniform(0, PAUSE))
            producer.stop()
            job.drain()
            wait_for(rows, producer.count, job)
            job.drain()
        finally:
            producer.stop()
            job.end()
            told = (tmp_path / "job.err").read_text()
            print(f"seed {seed}: {struck}\n{told[-3000:]}")
        found = rows.close()

    judge(found, producer.count)
    seconds, fenced = time.monotonic() - began, told.count("This process stops") + told.count("now owns the shards")
    print(
        f"{sink}: {len(found)} rows, {len(struck)} rounds in {seconds:.0f} s, {fenced} fenced, {job.restarts} gave up"
    )


def judge(found, count):
    assert sorted(number for number, *_ in found) == list(range(count)), "each number once"
    for shard in {row[2] for row in found}:
        sequences = [row[3] for row in found if row[2] == shard]
        assert sequences == sorted(sequences), f"{shard} is out of order"
    for key in range(KEYS):
        numbers = [row[0] for row in found if row[1] == key]
        assert numbers == sorted(numbers), f"key {key} is out of order: a child was written before its parent"


def properties(endpoint):
    return {
        **endpoint.endpoint.properties(),
        "flink.streams": "orders",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.job.name": "orders",
        "flink.deserializer": "json",
        "flink.state.checkpoint.interval": 300,
        "flink.shard.discovery.intervalmillis": 1000,
        "flink.shard.getrecords.maxretries": 50,
    }
