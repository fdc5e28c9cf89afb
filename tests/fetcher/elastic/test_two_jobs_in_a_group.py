"""E10: processes of two jobs come and go over one group, by chance: at any time it does one of them."""

import asyncio
import random
from itertools import pairwise

import pytest

from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, WORKERS
from recordpublisher.fetcher.leases.lease_table import table_from_bytes
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses

STREAMS = ("s", "t")


class TwoJobs:
    """Owns the group, its processes with the stream of each, and each lease table with the workers that were sealed when it was written."""

    def __init__(self, seed):
        self.group = ElasticProcesses(4, streams=STREAMS)
        self.group.source.latency = 5
        self.random = random.Random(seed)
        self.joined = []
        self.refused = 0
        self.tables = []
        self._write = self.group.store._write
        self.group.store._write = self._noted

    def _noted(self, name, value, expected):
        version = self._write(name, value, expected)
        if name == LEASE_TABLE:
            records = [
                WorkerRecord.from_bytes(each.value, name)
                for name, each in self.group.store.values.items()
                if name.startswith(WORKERS)
            ]
            self.tables.append((table_from_bytes(value, name), {each.worker for each in records if each.is_sealed}))
        return version

    async def start(self):
        stream = self.random.choice(STREAMS)
        try:
            self.joined.append((stream, await self.group.join((stream,))))
        except StateError:
            self.refused += 1

    async def play(self, steps):
        starting = []
        for _ in range(steps):
            running = [process for _, process in self.joined if not process.running.done()]
            kind = self.random.choice(["start", "start", "stop", "kill", "cut"]) if running else "start"
            if kind == "start":
                starting.append(asyncio.create_task(self.start()))
            elif kind == "cut":
                chosen = self.random.choice(running)
                chosen.store.is_cut = True
                asyncio.get_running_loop().call_later(
                    self.random.uniform(5, 2 * DURATION), setattr, chosen.store, "is_cut", False
                )
            elif kind == "stop":
                self.random.choice(running).fetcher.stop()
            else:
                self.random.choice(running).running.cancel()
            await asyncio.sleep(self.random.choice([0.1, 3, 30]) * self.random.random())
        await asyncio.sleep(4 * DURATION)
        await asyncio.gather(*starting)
        for _, process in self.joined:
            await process.kill()

    def check(self):
        """A worker takes shards only while the group does its job, and a job begins only when every owner was sealed."""
        streams = {worker: stream for stream, process in self.joined for worker in process.store.workers}
        for (before, _), (table, sealed) in pairwise(self.tables):
            taken = {shard: lease for shard, lease in table.leases.items() if lease != before.leases.get(shard)}
            for shard, lease in taken.items():
                if lease.owner is not None:
                    assert table.job.streams == (streams[lease.owner],), f"{lease.owner} takes {shard}"
            if before.job != table.job:
                assert table.owners <= sealed, "the group was begun anew while a worker had shards"

    @property
    def changes(self):
        jobs = [table.job for table, _ in self.tables]
        return sum(before != after for before, after in pairwise(jobs))


@pytest.mark.parametrize("seed", range(6))
def test_a_group_does_one_job_at_any_time(seed):
    jobs = TwoJobs(seed)
    run_virtual(jobs.play(25))
    jobs.check()
    assert jobs.refused > 0


@pytest.mark.slow
def test_the_job_changes_in_these_schedules():
    changes = 0
    for seed in range(2):
        jobs = TwoJobs(seed)
        run_virtual(jobs.play(25))
        changes += jobs.changes
    assert changes > 0
