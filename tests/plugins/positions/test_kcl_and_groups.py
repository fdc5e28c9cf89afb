"""A group of workers (GROUP) goes on after a lease table of the KCL, and the KCL after the group; a group that lives is refused."""

import asyncio
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.plugins.positions.job_positions import JobPositions
from recordpublisher.plugins.stores.by_location import conditional_store_of

from fakes.kcl.lease_table import KclTable, lease_item
from fakes.kcl.moves import SHARDS, Mover, put_numbers
from fakes.kcl.worker import KclWorker

WORKERS = 2
TIMES = {"flink.state.checkpoint.interval": 200, "flink.lease.duration": 2_000}


@pytest.fixture
def mover(job, kinesis):
    """Of a job that is a group."""
    return Mover(job.merged({"flink.job.workers": "GROUP", **TIMES}), kinesis)


@pytest.fixture
def table():
    """What the KCL writes when it has seen a stream of two shards for the first time."""
    return KclTable(*map(lease_item, SHARDS))


async def run_workers(job, count, is_done):
    """Processes of the group; they stop when `is_done` says so of the numbers that they have read."""
    sink = rp.MemorySink()
    fetchers = [rp.DataFetcher([job["flink.streams"]], job, sink=sink) for _ in range(count)]

    async def run(fetcher):
        async with fetcher:
            await fetcher.run()

    running = [asyncio.create_task(run(each)) for each in fetchers]
    async with asyncio.timeout(60):
        while not await is_done([int(record.data) for record in sink.records]):
            done = [each for each in running if each.done()]
            assert not done, done
            await asyncio.sleep(0.1)
        for each in fetchers:
            each.stop()
        await asyncio.gather(*running)
    return [int(record.data) for record in sink.records]


def run_group(job, expected):
    """What the group reads until it has read so many numbers."""

    async def is_done(numbers):
        return len(numbers) >= expected

    return asyncio.run(run_workers(job, WORKERS, is_done))


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 5, 8])
def test_every_record_is_read_once_from_the_kcl_to_a_group_and_back(mover, endpoint, kinesis, stream, table, most):
    """`most`: what the KCL reads of each shard first; 1 is within its aggregate, 5 is at its end, 8 is a record of its own."""
    worker = KclWorker(kinesis, table, stream)
    expected = put_numbers(endpoint, stream, range(20))
    found = worker.read(most)

    mover.move("import", table)
    expected += put_numbers(endpoint, stream, range(20, 30))
    found += run_group(mover.job, len(expected) - len(found))
    assert sorted(found) == expected

    mover.move("export", table)
    expected += put_numbers(endpoint, stream, range(30, 50))
    found += worker.read()
    assert sorted(found) == expected


def test_a_stream_that_is_split_on_both_sides_is_read_once(mover, endpoint, kinesis, stream, table):
    worker = KclWorker(kinesis, table, stream)
    expected = put_numbers(endpoint, stream, range(20))
    found = worker.read(4)
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARDS[0], NewStartingHashKey=str(2**126))
    expected += put_numbers(endpoint, stream, range(20, 40))

    mover.move("import", table)
    found += run_group(mover.job, len(expected) - len(found))
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARDS[1], NewStartingHashKey=str(3 * 2**126))
    expected += put_numbers(endpoint, stream, range(40, 60))

    mover.move("export", table)
    found += worker.read()
    assert sorted(found) == expected


def test_a_group_that_reads_a_quiet_stream_is_not_exported(mover, endpoint, stream, table):
    put_numbers(endpoint, stream, range(2))
    mover.move("import", table)

    async def story():
        refused = []

        async def is_done(numbers):
            if len(numbers) == 2 and not refused:
                moving = mover.transfer(table, lambda: None, is_forced=False)
                async with moving as transfer:
                    quiet = replace(transfer, watch_seconds=0, pause=asyncio.sleep)
                    with pytest.raises(rp.StateError) as error:
                        await quiet.plan_export()
                refused.append(str(error.value))
            return bool(refused)

        await run_workers(mover.job, 1, is_done)
        return refused

    (message,) = asyncio.run(story())
    assert "the job is running: worker " in message
    assert len(mover.plan("export", table)) == 2  # it has left: its record is sealed


class Heartbeats:
    """Writes those of a worker into the store of the job."""

    def __init__(self, job):
        self.job = job

    def __call__(self, beat):
        async def write():
            store = conditional_store_of(self.job["flink.state.uri"], "flink.state.uri", self.job)
            group = GroupStore(store)
            found = (await group.read_records()).get("silent")
            record = WorkerRecord("silent", beat)
            await group.write("group/workers/silent", record.to_bytes(), None if found is None else found.version)
            await store.close()

        asyncio.run(write())


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_heartbeat_between_the_two_looks_is_refused_unless_it_is_forced(mover, table, direction):
    beat = Heartbeats(mover.job)
    if direction == "export":
        mover.move("import", table)
    beat(1)
    with pytest.raises(rp.StateError, match="the job is running: worker silent of its group sends heartbeats"):
        mover.plan(direction, table, pause=lambda: beat(2))
    assert len(mover.plan(direction, table)) == 2  # it died: its heartbeat does not move
    assert len(mover.plan(direction, table, pause=lambda: beat(3), is_forced=True)) == 2


def test_the_job_is_watched_for_two_heartbeats_at_least(mover, table):
    Heartbeats(mover.job)(1)
    positions = JobPositions(mover.job.merged({"flink.lease.duration": 120_000}))
    assert positions.heartbeat_seconds == 30
    mover.job = mover.job.merged({"flink.lease.duration": 120_000})
    mover.watched = 60
    assert len(mover.plan("import", table)) == 2
