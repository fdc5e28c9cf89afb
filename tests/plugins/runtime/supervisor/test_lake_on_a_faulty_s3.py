"""A stream into Parquet, Delta and Iceberg on a faulty S3 server while processes are killed, join and leave: each record is visible once.

RECORDPUBLISHER_SECONDS, RECORDPUBLISHER_KILL_SECONDS: for how long, and how often a process is killed.
"""

import os
import random
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from groups.load import SteadyLoad
from groups.worker_group import SHARDS, worker_group
from processes.command_line import json_results
from processes.job_files import children_of, end, job_file
from processes.process_faults import FaultInjectedJob, kill
from s3.faulty_proxy import faulty_s3
from s3.readers import DeltaReader, IcebergReader, LakeReader
from servers.atomic_stores import KEY, PROPERTIES, SECRET, serve_versitygw

SECONDS = float(os.environ.get("RECORDPUBLISHER_SECONDS", "110"))
PAUSE = float(os.environ.get("RECORDPUBLISHER_KILL_SECONDS", "5"))
COMMIT_MS = 1_000 if SECONDS < 600 else 5_000
MOST_SHARDS = 8
TABLE = "lake.orders"


class Lake:
    """Owns the processes: two workers of a group that write Parquet, a job for Delta, and one for Iceberg; and what was done to them."""

    def __init__(self, group, folder, tables, chance):
        self._group, self._chance = group, chance
        self.done = Counter()
        self._workers = []
        for _ in range(2):
            self._join()
        self.jobs = []
        for name, properties in tables.items():
            (folder / name).mkdir()
            self.jobs.append(FaultInjectedJob(job_file(folder / name, properties), (1, 2), chance))
        self.strikes = [self.kill_worker, self.kill_worker, self.leave, *self.jobs, *self.jobs]

    def _join(self):
        name = f"worker-{len(self._group.processes)}"
        self._group.join(name)
        self._workers.append(self._group.processes[name])

    def kill_worker(self):
        victim = self._workers.pop(self._chance.randrange(2))
        kill(victim.pid)
        victim.wait()
        self.done["kills"] += 1
        self._join()

    def leave(self):
        """One worker comes, another goes."""
        self._join()
        assert end(self._workers.pop(0), seconds=120) in (0, 1)
        self.done["left"] += 1

    def strike(self):
        chosen = self._chance.choice(self.strikes)
        if isinstance(chosen, FaultInjectedJob):
            for pid in [chosen.process.pid, *children_of(chosen.process.pid)]:  # also while it starts
                kill(pid)
            chosen.process.wait()
            chosen.start()
            self.done["kills"] += 1
        else:
            chosen()

    def reshard(self):
        open_shards = len(self._group.open_shards())
        merges = open_shards > 1 and (open_shards >= MOST_SHARDS or self._chance.random() < 0.4)
        (self._group.merge if merges else self._group.split)()
        self.done["reshards"] += 1

    def keep_running(self):
        """A process that gave up (S3 was away for longer than it tries) is started again, as a supervisor in production would."""
        for job in self.jobs:
            job.keep_running()
        for gone in [each for each in self._workers if each.poll() is not None]:
            assert gone.poll() == 1, f"a worker ended with {gone.poll()}"
            self._workers.remove(gone)
            self.done["gave up"] += 1
            self._join()

    def stop(self):
        """Each process ends by itself, with what it had committed."""
        assert [end(each, seconds=120) for each in self._workers] == [0] * len(self._workers)
        assert [end(job.process, seconds=120) for job in self.jobs] == [0] * len(self.jobs)


@contextmanager
def readers_of(url, folder, catalog):
    readers = []
    for name in ("files", "delta", "warehouse/lake/orders"):
        copies = folder / f"copies-{len(readers)}"
        copies.mkdir()
        given = url, name, copies
        kind = {"files": LakeReader, "delta": DeltaReader}.get(name)
        readers.append(kind(*given) if kind else IcebergReader(*given, catalog, TABLE))
    try:
        yield readers
    finally:
        for reader in readers:
            reader.close()


@pytest.mark.sinks
@pytest.mark.timeout(SECONDS + 900)
def test_each_record_is_visible_once(tmp_path):
    seed = int(os.environ.get("RECORDPUBLISHER_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    with serve_versitygw() as url, faulty_s3(url, random.Random(seed)) as s3:
        catalog = catalog_of(s3.url, tmp_path)
        with (
            worker_group(tmp_path, SHARDS, {**on(s3.url, "files"), **PARQUET}) as group,
            readers_of(url, tmp_path, catalog) as readers,
        ):
            stream = group.properties
            iceberg = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
            iceberg |= {"flink.sink": "iceberg", "flink.sink.iceberg.table": TABLE}
            tables = {
                "delta": {**stream, **on(s3.url, "delta"), **DELTA},
                "iceberg": {**stream, **on(s3.url, "iceberg"), **iceberg},
            }
            lake = Lake(group, tmp_path, tables, chance)
            try:
                rows = strike_for(SECONDS, group, s3, lake, readers, chance)
            finally:
                for job in lake.jobs:
                    job.end()
                done = {**lake.done, "restarts": sum(job.restarts for job in lake.jobs), **s3.counts}
                print(f"seed {seed}: {done}")
            jobs = [next(tmp_path.glob("worker-*")), *(tmp_path / name for name in tables)]
            removed = [remove_leftovers(job / "job.properties", url) for job in jobs]
            for reader in readers:
                left = {key for key in reader.keys() - reader.visible() if "staged/" in key or key.startswith("data/")}
                assert left == set(), "only what readers see is there"
                assert reader.check() == rows
        print(f"removed: {removed}")
        print(f"{rows} records in each, {[len(reader.visible()) for reader in readers]} files")


def remove_leftovers(job, url):
    """What the command says that it has removed, in the last line."""
    options = [str(job), "--older-than", "0", "-p", f"flink.state.endpoint={url}"]
    options += ["-p", f"flink.sink.iceberg.catalog.s3.endpoint={url}"]
    (code, removed, errors), (_, left, _) = json_results(
        "commands_in_one_process", [["leftovers", *options, "--remove"], ["leftovers", *options]]
    )
    assert (code, left) == (0, "0 leftovers, 0 bytes.\n"), errors
    return removed.splitlines()[-1]


def strike_for(seconds, group, s3, lake, readers, chance):
    """Returns how many records were sent, each of which every reader sees once."""
    began, rounds = time.monotonic(), 0
    with SteadyLoad(group, SHARDS, 5):
        while time.monotonic() - began < seconds:
            rounds += 1
            wait(PAUSE * chance.uniform(0.6, 1), lake)
            s3.is_bad_time = rounds % 4 == 1
            wait(min(PAUSE * 0.2, 3), lake)
            s3.is_bad_time = False
            lake.strike()
            if rounds % 3 == 0:
                lake.reshard()
            if rounds % 5 == 0:
                print(f"{time.monotonic() - began:.0f} s", [reader.check() for reader in readers], lake.done, s3.counts)
    sent = sorted(group.sent)
    deadline = time.monotonic() + 180
    while (seen := [reader.check() for reader in readers]) != [len(sent)] * len(readers):
        assert time.monotonic() < deadline, f"{seen} of {len(sent)} rows"
        wait(1, lake)
    lake.stop()
    for reader in readers:
        assert sorted(reader.numbers()) == sent, "each record once"
    return len(sent)


def wait(seconds, lake):
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        lake.keep_running()
        time.sleep(min(left, 0.2))


def on(url, name):
    """A job with its positions, where its sink has none, below `positions`."""
    return {
        **PROPERTIES,
        "flink.job.name": name,
        "flink.state.uri": f"s3://bucket/positions/{name}",
        "flink.state.endpoint": url,
        "flink.state.checkpoint.interval": COMMIT_MS,
        "flink.lease.duration": 10_000,
        "flink.shard.discovery.intervalmillis": 1000,
    }


PARQUET = {"flink.sink": "parquet", "flink.sink.parquet.path": "s3://bucket/files"}
DELTA = {"flink.sink": "delta", "flink.sink.delta.uri": "s3://bucket/delta"}


def catalog_of(url, folder):
    place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://bucket/warehouse"}
    access = {"endpoint": url, "access-key-id": KEY, "secret-access-key": SECRET, "region": "us-east-1"}
    return place | {f"s3.{name}": value for name, value in access.items()}
