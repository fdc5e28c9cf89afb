"""A real fetcher, and the query's planner over its log, on one event loop and without Spark."""

from __future__ import annotations

import asyncio
import itertools
import json
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES, WalEntry, last_entry
from recordpublisher.plugins.spark.continuous.wal_fetcher import WalFetcher
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.errors import FencedError, StateError

from fakes.spark.continuous import CLOCK, NO_LIMIT, Query
from spark_jobs.queries import Kinesis

NAMES = itertools.count()
LOOKAHEAD = 5_000


@pytest.fixture
def stream(served):
    return Kinesis(served, f"continuous-{next(NAMES)}", 2)


@pytest.fixture
def store(tmp_path):
    return WriteOnceStore(FolderStore(tmp_path / "metadata"))


def options_of(stream, tmp_path, **more) -> SparkOptions:
    given = {"mode": "continuous", "walRollInterval": 50, "flink.shard.getrecords.intervalmillis": 50, **more}
    return SparkOptions.parse(stream.options(tmp_path, **given))


@asynccontextmanager
async def fetching(options, store) -> AsyncIterator[asyncio.Task[int]]:
    """A start of the fetcher, which is stopped at the end of the block."""
    fetcher = await take_over(options, store)
    task = asyncio.create_task(fetcher.run())
    try:
        yield task
    finally:
        fetcher.stop()
        await asyncio.gather(task, return_exceptions=True)


async def take_over(options, store) -> WalFetcher:
    return await WalFetcher.take_over(options, store, BackPressure(NO_LIMIT), CLOCK)


async def read(query: Query, count: int) -> None:
    """Run batches until the query has this many rows."""
    async with asyncio.timeout(60):
        while query.log[-1].records < count:
            await query.run_batch()
            await asyncio.sleep(0.02)


def rows(query: Query) -> int:
    taken = [row for batch in query.batches.values() for row in batch]
    assert len(taken) == len(set(taken)), "duplicates"
    return len(taken)


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_every_record_once_through_splits_and_restarts(stream, store, tmp_path, publisher):
    fan_out = {"flink.stream.efo.consumername": "continuous"} if publisher == "EFO" else {}
    options = options_of(stream, tmp_path, **{"flink.stream.recordpublisher": publisher, **fan_out})
    query = Query(store)
    await query.start()
    for _ in range(2):
        stream.put(300)
        async with fetching(options, store):
            await read(query, stream.count)
            stream.split(0)
            stream.put(200)
            await read(query, stream.count)
    await query.run_all()
    assert rows(query) == stream.count
    assert len({shard for batch in query.batches.values() for shard, _ in batch}) == 6


async def test_w8_emitted_event_times_lie_within_the_lookahead(stream, store, tmp_path):
    stream.put(400, lambda n: n * 100, shard=0)
    stream.put(400, lambda n: 20_000 + (n - 400) * 100, shard=1)
    options = options_of(
        stream, tmp_path, **{"flink.watermark.lookahead.millis": LOOKAHEAD, "flink.shard.idle.interval": 1000}
    )
    query = Query(store)
    await query.start()
    async with fetching(options, store):
        await read(query, 800)
    spreads = []
    for name in await store.names(ENTRIES):
        entry = WalEntry.from_bytes(await store.get(name))
        if entry.file is not None:
            table = pa.ipc.open_stream(await store.get(entry.file)).read_all()
            latest = max(json.loads(data)["at"] for data in table["data"].to_pylist())
            assert entry.watermark is not None
            spreads.append(latest - entry.watermark)
    assert max(spreads) <= LOOKAHEAD
    assert rows(query) == 800


async def test_s6_the_fetcher_of_an_older_start_is_fenced(stream, store, tmp_path):
    options = options_of(stream, tmp_path)
    query = Query(store)
    await query.start()
    async with fetching(options, store) as old:
        stream.put(100)
        await read(query, 100)
        async with fetching(options, store):
            stream.put(100)
            await read(query, 200)
            async with asyncio.timeout(60):
                (ended,) = await asyncio.gather(old, return_exceptions=True)
        assert isinstance(ended, FencedError)
    await query.run_all()
    assert rows(query) == 200


async def test_p3_latest_is_the_time_of_the_first_start_for_every_start(stream, store, tmp_path):
    stream.put(50)
    options = options_of(stream, tmp_path, **{"flink.stream.initpos": "LATEST"})
    await asyncio.sleep(1.1)  # the service reports its time in whole seconds
    await take_over(options, store)
    _, entry = await last_entry(store)
    assert entry.state["pinnedStartMs"]
    stream.put(70)
    query = Query(store)
    await query.start()
    async with fetching(options, store):
        await read(query, 70)
    assert rows(query) == 70


async def test_a_log_that_cannot_be_written_is_an_error(stream, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StateError, match="cannot be used"):
            await take_over(options_of(stream, tmp_path), WriteOnceStore(FolderStore(tmp_path / "file")))
