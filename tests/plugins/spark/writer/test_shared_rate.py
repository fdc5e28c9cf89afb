"""Tasks that write to one shard concurrently, on virtual time: together they use its capacity with few throttles."""

from __future__ import annotations

import asyncio

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import WriterPool
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.writable_stream import FakeKinesis

TASKS, ROWS = 8, 1_000


def written_by_tasks(**options):
    """Start all tasks at once on a shard that takes 1,000 records a second; returns seconds and the number of throttled records."""
    settings = WriteOptions.parse({"stream": "out", **options}).settings

    async def job():
        fake, clock = FakeKinesis(), VirtualClock()
        fake.rate = 1_000.0
        workers = [WriterPool(settings, lambda _: fake, clock) for _ in range(TASKS)]
        began = clock.monotonic()
        await asyncio.gather(*[write(worker) for worker in workers])
        seconds, throttles = clock.monotonic() - began, sum(worker.totals()["throttles"] for worker in workers)
        for worker in workers:
            await worker.abandon()
        assert len(fake.user_records()) == TASKS * ROWS
        return seconds, throttles

    return run_virtual(job())


async def write(worker):
    await worker.put({"out": [PendingRecord(bytes(100), f"k{n}", None, 104) for n in range(ROWS)]})
    await worker.flush()


def test_tasks_with_write_tasks_set_are_never_throttled():
    seconds, throttles = written_by_tasks(writetasks=str(TASKS))
    assert throttles == 0
    assert seconds <= 9


def test_tasks_without_write_tasks_use_the_shards_capacity_with_fewer_throttles_than_writes():
    seconds, throttles = written_by_tasks()
    assert throttles < TASKS * ROWS, "beginning as fast as alone it is four times as much"
    assert seconds <= 10
