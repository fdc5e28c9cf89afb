"""An archive whose job is killed again and again, over reshards, has each record once and in order (`make kills`).

`RECORDPUBLISHER_SECONDS=3600 RECORDPUBLISHER_KILL_SECONDS=30` make one of an hour.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from ..sinks.tables.lake_tables import place_of, uri_of

SECONDS = float(os.environ.get("RECORDPUBLISHER_SECONDS", "45"))
KILL_SECONDS = float(os.environ.get("RECORDPUBLISHER_KILL_SECONDS", "5"))
JOB = """
import asyncio, json, sys
import recordpublisher as rp

async def main():
    async with rp.DataFetcher("orders", json.loads(sys.argv[1])) as fetcher:
        await fetcher.run()

asyncio.run(main())
"""


class Rows(rp.Sink):
    def __init__(self):
        self.rows = defaultdict(list)

    async def write(self, batch):
        self.rows[batch.shard_id] += zip(map(int, batch.sequence_numbers), map(int, batch.data), strict=True)

    def count(self):
        return sum(map(len, self.rows.values()))


@pytest.mark.kills
@pytest.mark.timeout(2 * SECONDS + 300)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "delta", "iceberg"])
def test_an_archive_of_a_killed_job_has_each_record_once_in_order(tmp_path, kind):
    draw = random.Random(7)
    with serve_in_thread(streams={"orders": 2}) as served:
        stream = served.stream("orders")
        given = {
            **served.endpoint.properties(),
            "flink.sink": kind,
            **place_of(tmp_path, kind),
            "flink.sink.archive": True,
            "flink.state.checkpoint.interval": 300,
            "flink.job.name": "archive",
            "flink.shard.discovery.intervalmillis": 500,
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        put = kills = 0
        reshards = [SECONDS * share for share in (0.2, 0.45, 0.7)]
        changes = [
            lambda: stream.split("shardId-000000000000"),
            lambda: stream.split("shardId-000000000001"),
            lambda: stream.merge("shardId-000000000002", "shardId-000000000003"),
        ]
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            job = subprocess.Popen([sys.executable, "-c", JOB, json.dumps(given)])
            try:
                until = time.monotonic() + KILL_SECONDS * draw.uniform(0.7, 1.3)
                while time.monotonic() < until:
                    stream.put(*range(put, put + 20))
                    put += 20
                    if reshards and time.monotonic() - began > reshards[0]:
                        reshards.pop(0)
                        changes.pop(0)()
                    time.sleep(0.05)
                if kind == "delta":
                    compact(tmp_path)
            finally:
                job.kill()
                job.wait()
            kills += 1
        assert not reshards
        asyncio.run(finish(given))
        past = Rows()
        reading = {
            **served.endpoint.properties(),
            "flink.stream.recordpublisher": "ARCHIVE",
            **uri_of(tmp_path, kind),
        }
        asyncio.run(read({**reading, "flink.archive.live": "NONE"}, past, None))
        stream.put(*range(put, put + 100))
        both = Rows()
        asyncio.run(read({**reading, "flink.archive.live": "POLLING"}, both, put + 100))

    print(f"{kills} kills, {put} records, {len(past.rows)} shards")
    check(past, put)
    check(both, put + 100)


def compact(folder):
    """Join the small files while the job runs, and delete the files that are replaced."""
    if DeltaTable.is_deltatable(str(folder)):
        with suppress(CommitFailedError):
            DeltaTable(str(folder)).optimize.compact()
        DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False)


async def finish(given):
    """One more start, which reads to the tip and publishes what is committed."""
    async with rp.DataFetcher("orders", given) as fetcher:
        running = asyncio.create_task(fetcher.run())
        await fetcher.wait_ready()
        before, same = None, 0
        async with asyncio.timeout(120):
            while same < 10:
                await asyncio.sleep(0.5)
                now = [
                    (key, each["position"]) for key, each in fetcher.snapshot()["shards"].items() if "position" in each
                ]
                before, same = now, same + 1 if now == before else 0
        fetcher.stop()
        await running


async def read(given, sink, count):
    given = {**given, "flink.stream.initpos": "TRIM_HORIZON", "flink.shard.discovery.intervalmillis": 500}
    async with rp.DataFetcher("orders", given, sink=sink) as fetcher:
        running = asyncio.create_task(fetcher.run())
        async with asyncio.timeout(120 + SECONDS / 4):  # a job of an hour leaves tens of thousands of files
            while not running.done() and (count is None or sink.count() < count):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        fetcher.stop()
        await running


def check(sink, put):
    for shard, rows in sink.rows.items():
        numbers = [number for number, _ in rows]
        assert numbers == sorted(set(numbers)), shard
    assert sorted(value for rows in sink.rows.values() for _, value in rows) == list(range(put))
