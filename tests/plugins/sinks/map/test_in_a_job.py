"""MapSink in a job: what a stored position covers, and what is handled again after a restart."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore

from fakes.memory_streams import PROPERTIES, install

GIVEN = {**PROPERTIES, "flink.job.name": "job", "flink.state.checkpoint.interval": "20"}


RECORDS = {"a": [b"a0", b"a1", b"a2"], "b": [b"b0", b"b1", b"b2"]}


@pytest.fixture
def open_shards(monkeypatch):
    install(monkeypatch, RECORDS)


@pytest.fixture
def ended_shards(monkeypatch):
    install(monkeypatch, RECORDS, closed=True)


def job(handler, folder, **options):
    sink = rp.MapSink(handler, ordering="PER_SHARD", **options)
    return rp.DataFetcher(["orders"], {**GIVEN, "flink.state.uri": str(folder)}, sink=sink)


async def stored_positions(folder):
    states = await SnapshotStore(rp.FolderStore(folder)).load()
    return {key: entry.get("position") for state in states for key, entry in state["shards"].items()}


async def stopped_while_two_run(fetcher, seen, go_on):
    """Run until two handlers have begun, stop, and let them end."""
    running = asyncio.ensure_future(fetcher.run())
    while len(seen) < 2:  # noqa: ASYNC110 - the handlers are what is looked at
        await asyncio.sleep(0.01)
    fetcher.stop()
    await asyncio.sleep(0.05)
    go_on.set()
    await running


async def test_a_record_that_takes_long_holds_back_its_shard_and_no_other(tmp_path, open_shards):
    seen, again = [], []

    async def stuck(record):
        seen.append(record.data)
        if record.data == b"a1":
            await asyncio.Event().wait()

    async def handle(record):
        again.append(record.data)

    async with job(stuck, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while (await stored_positions(tmp_path)).get("orders/b") != "2":  # noqa: ASYNC110 - the store is what is looked at
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
    positions = await stored_positions(tmp_path)
    async with job(handle, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while b"a2" not in again:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        fetcher.stop()
        await running

    assert sorted(seen) == [b"a0", b"a1", b"b0", b"b1", b"b2"]
    assert positions == {"orders/a": "0", "orders/b": "2"}
    assert again == [b"a1", b"a2"]


async def test_the_end_of_a_run_waits_for_every_record(tmp_path, ended_shards):
    seen = []

    async def handle(record):
        await asyncio.sleep(0.01)
        seen.append(record.data)

    async with job(handle, tmp_path) as fetcher:
        await fetcher.run()
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


async def test_a_job_that_is_stopped_leaves_what_no_handler_has_begun_to_the_next_start(tmp_path, open_shards):
    seen, go_on = [], asyncio.Event()

    async def slow(record):
        seen.append(record.data)
        await go_on.wait()

    async def handle(record):
        seen.append(record.data)

    async with job(slow, tmp_path) as fetcher:
        await stopped_while_two_run(fetcher, seen, go_on)
    begun = sorted(seen)
    async with job(handle, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while len(seen) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        fetcher.stop()
        await running

    assert begun == [b"a0", b"b0"]
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


async def test_without_a_store_a_job_that_is_stopped_handles_all_that_its_snapshot_covers(open_shards):
    seen, go_on = [], asyncio.Event()

    async def slow(record):
        seen.append(record.data)
        await go_on.wait()

    async with rp.DataFetcher(["orders"], GIVEN, sink=rp.MapSink(slow, ordering="PER_SHARD")) as fetcher:
        await stopped_while_two_run(fetcher, seen, go_on)
        covered = {key: entry["position"] for key, entry in fetcher.snapshot()["shards"].items()}

    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert covered == {"orders/a": "2", "orders/b": "2"}


async def test_a_failure_ends_the_job_with_the_record_and_its_cause(tmp_path, ended_shards):
    async def handle(record):
        raise KeyError("customer")

    async with job(handle, tmp_path, retries=0) as fetcher:
        with pytest.raises(
            rp.SinkError, match=r"record 0 of orders/. cannot be handled after 1 attempt: KeyError"
        ) as raised:
            await fetcher.run()
    assert isinstance(raised.value.__cause__, KeyError)
