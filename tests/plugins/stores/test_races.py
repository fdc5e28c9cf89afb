"""Twenty writers at once, each with a client of its own, on every store whose conditions are atomic: exactly one wins."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.spark_read_claims import BatchId, ReadClaimStore
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.publishers.positions import StartingPosition

from fakes.stored_job import alone_worker, snapshot_at

WRITERS = 20
TIMEOUT = 60
KINDS = [
    "FILE",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("SQLITE", "POSTGRESQL")),
    *(pytest.param(kind, marks=pytest.mark.compare) for kind in ("VERSITYGW", "DYNAMODB_LOCAL")),
]
BATCH = BatchId("query", 1, "plan")


class Race:
    """Runs the same work in twenty threads, each with an event loop and a store of its own. `begin` waits for all of them."""

    def __init__(self, open_store):
        self._open_store = open_store
        self._barrier = threading.Barrier(WRITERS, timeout=3 * TIMEOUT)

    def run(self, work):
        """`work(number, store, begin)` of each thread; its results."""

        async def one(number):
            store = self._open_store()
            try:
                return await work(number, store, self._begin)
            finally:
                await store.close()

        with ThreadPoolExecutor(WRITERS) as threads:
            return list(threads.map(lambda number: asyncio.run(one(number)), range(WRITERS)))

    async def _begin(self):
        self._barrier.wait()


@pytest.fixture(params=KINDS)
def open_shared(request, tmp_path, locate):
    location, properties = locate(request.param)
    return lambda: conditional_store_of(location, "uri", properties.merged({"flink.job.name": tmp_path.name}))


@pytest.fixture
def race(open_shared):
    return Race(open_shared).run


async def won(write):
    """Whether a conditional write took effect."""
    try:
        await write
    except ConflictError:
        return False
    return True


def test_one_of_twenty_creates_a_value_and_one_replaces_it(race):
    async def work(number, store, begin):
        await store.get("a")  # a connection is open
        await begin()
        created = await won(store.put_if_absent("a", b"first %d" % number))
        found = await store.get("a")
        await begin()
        replaced = await won(store.compare_and_set("a", b"second %d" % number, found.version))
        return created, replaced, (await store.get("a")).value

    results = race(work)

    assert sum(created for created, _, _ in results) == 1
    winner = [number for number, (_, replaced, _) in enumerate(results) if replaced]
    assert {value for _, _, value in results} == {b"second %d" % number for number in winner}
    assert len(winner) == 1


def test_of_twenty_starts_of_a_job_the_last_one_may_store(race):
    async def work(number, store, begin):
        start, epoch = alone_worker(store), None
        await begin()
        with suppress(FencedError):  # another one has sealed it before it took the shards
            epoch, _ = await retried(start.open)
        await begin()
        try:
            await start.store(snapshot_at(number))
        except FencedError:
            return epoch, False
        return epoch, True

    results = race(work)

    epochs = [epoch for epoch, _ in results if epoch is not None]
    assert len(set(epochs)) == len(epochs)
    assert [epoch for epoch, may_store in results if may_store] == [max(epochs)]


async def retried(start):
    """Twenty starts at once may be in each other's way for longer than one waits."""
    while True:
        try:
            return await start()
        except FencedError:
            raise
        except StateError:
            await asyncio.sleep(0.1)


def test_twenty_attempts_of_a_task_read_what_one_of_them_claimed(race):
    async def work(number, store, begin):
        loop = asyncio.get_running_loop()

        def claim():
            claims = ReadClaimStore(store, lambda call: asyncio.run_coroutine_threadsafe(call, loop).result(TIMEOUT))
            return claims.put_if_absent(BATCH, "group", b"%d" % number)

        await begin()
        return await asyncio.to_thread(claim)

    assert len(set(race(work))) == 1


def test_one_of_twenty_workers_takes_a_shard(race):
    start = StartingPosition.trim_horizon()

    async def work(number, store, begin):
        group = GroupStore(store, TIMEOUT)
        first = LeaseTable(1, str(number), start, {"s/shard": Lease()})
        await begin()
        created = await won(group.write_table(first, None))
        found = await group.read_table()
        await begin()
        taken = found.document.with_changes(str(number), taken={"s/shard": found.document.version + 1})
        return created, await won(group.write_table(taken, found.version)), str(number)

    results = race(work)

    assert [sum(each[step] for each in results) for step in (0, 1)] == [1, 1]


def test_a_worker_is_sealed_once_or_sends_its_heartbeat(race):
    async def work(number, store, begin):
        group, mine = GroupStore(store, TIMEOUT), None
        if number == 0:
            mine = group.own_record("worker")
            await mine.write(WorkerRecord("worker", 1))
        await begin()
        found = (await group.read_records())["worker"]
        await begin()
        if mine is None:
            return await won(group.seal_record(found))
        try:
            await mine.write(WorkerRecord("worker", 2))
        except FencedError:
            return False
        return True

    assert sum(race(work)) == 1
