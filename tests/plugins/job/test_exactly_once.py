"""Stream to PostgreSQL under fire: every row exactly once and in order, whoever is killed, suspended or cut off (S1, S2, S6)."""

import json
import os
import random
import threading
import time

import boto3
import psycopg
import pytest
from job_files import job_file
from postgresql import serve_postgresql
from strikes import FAULTS, JobUnderFire

from recordpublisher.plugins.local import serve_in_thread

ROUNDS = int(os.environ.get("RECORDPUBLISHER_ROUNDS", "16"))
SECONDS = float(os.environ.get("RECORDPUBLISHER_SECONDS", "inf"))
PAUSE = float(os.environ.get("RECORDPUBLISHER_ROUND_SECONDS", "1.5"))
KEYS = 97


class Producer(threading.Thread):
    """Puts numbered records, a few hundred a second, and plans faults beside them, until told to stop."""

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


class Rows:
    """What the database shows."""

    def __init__(self, uri):
        self._connection = psycopg.connect(uri, autocommit=True)
        self._connection.execute(
            "create table orders (id bigserial, number int, key int, shard_id text, sequence_number text)"
        )

    def count(self):
        return self._connection.execute("select count(*) from orders").fetchone()[0]

    def close(self):
        """Every row in the order of writing."""
        with self._connection:
            return self._connection.execute(
                "select number, key, shard_id, sequence_number from orders order by id"
            ).fetchall()

    def cut_connections(self):
        """As a restart or a fail-over of the server would."""
        self._connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )

    def wait_for(self, count, job, seconds=90):
        deadline = time.monotonic() + seconds
        while (rows := self.count()) < count:
            job.keep_running()
            assert time.monotonic() < deadline, f"{rows} of {count} rows after {seconds} s"
            time.sleep(0.05)


@pytest.mark.sinks
@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_every_row_exactly_once(tmp_path, record_property):
    seed = int(os.environ.get("RECORDPUBLISHER_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    began, struck = time.monotonic(), []
    with serve_postgresql() as uri, serve_in_thread(streams={"orders": 4}) as endpoint:
        rows = Rows(uri)
        producer = Producer(endpoint, chance)
        producer.start()
        job = JobUnderFire(job_file(tmp_path, properties(endpoint, uri)), 2, chance)
        strikes = {
            "kill a subtask": job.kill_subtask,
            "kill the supervisor": job.kill_supervisor,
            "kill everything": job.kill_everything,
            "suspend and replace": job.suspend_and_replace,
            "drain": job.drain,
            "cut the connections": rows.cut_connections,
        }
        try:
            for number in range(ROUNDS):
                if time.monotonic() - began > SECONDS:
                    break
                if number % len(strikes) == 0:
                    order = chance.sample(list(strikes), len(strikes))
                name = order[number % len(strikes)]
                struck.append(name)
                strikes[name]()
                if number % 7 == 3:
                    split_one(endpoint)
                rows.wait_for(rows.count() + 1, job)
                job.wake()
                time.sleep(chance.uniform(0, PAUSE))
            producer.stop()
            job.drain()  # a child in the other process starts when its parent's end is in a stored position: now, at the latest
            rows.wait_for(producer.count, job)
            job.drain()
        finally:
            producer.stop()
            job.end()
            told = (tmp_path / "job.err").read_text()
            print(f"seed {seed}: {struck}\n{told[-3000:]}")
        written = rows.close()

    assert sorted(number for number, *_ in written) == list(range(producer.count))
    for column, name in ((2, "shard"), (1, "key")):
        for one in {row[column] for row in written}:
            order = [int(row[3]) if name == "shard" else row[0] for row in written if row[column] == one]
            assert order == sorted(order), f"{name} {one} is out of order"
    seconds, fenced = time.monotonic() - began, told.count("must stop")
    print(f"{len(written)} rows, {len(struck)} rounds in {seconds:.0f} s, {fenced} fenced, {job.restarts} gave up")


def properties(endpoint, uri):
    return {
        **endpoint.endpoint.properties(),
        "flink.streams": "orders",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.job.name": "orders",
        "flink.deserializer": "json",
        "flink.sink": "sql",
        "flink.sink.sql.uri": uri,
        "flink.sink.sql.table": "orders",
        "flink.state.checkpoint.interval": 300,
        "flink.shard.discovery.intervalmillis": 1000,
        "flink.shard.getrecords.maxretries": 50,
    }
