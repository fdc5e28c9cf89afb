"""Lanes without Spark: real fetchers, tracker and lifeline on one loop, and the query's planner over what they leave."""

from __future__ import annotations

import asyncio
import itertools
import json
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from spool_model import CLOCK, Query

from recordpublisher.plugins.sinks.spark.spool.beginning import begin_generation
from recordpublisher.plugins.sinks.spark.spool.lane_task import live_in_lane
from recordpublisher.plugins.sinks.spark.spool.lifeline import DriverGoneError
from recordpublisher.plugins.sinks.spark.spool.manifest import Manifest
from recordpublisher.plugins.sinks.spark.spool.names import generation_name
from recordpublisher.plugins.sinks.spark.spool.switchboard import Switchboard
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.stores.file.object_store import FolderObjects
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError

from spark_jobs.queries import Kinesis

NAMES = itertools.count()
LOOKAHEAD = 5_000


@pytest.fixture
def stream(served):
    return Kinesis(served, f"lanes-{next(NAMES)}", 2)


@pytest.fixture
def store(tmp_path):
    return FolderObjects(tmp_path / "metadata")


def options_of(stream, tmp_path, **more) -> SparkOptions:
    given = {"mode": "continuous", "spoolRollInterval": 50, "flink.shard.getrecords.intervalmillis": 50, **more}
    return SparkOptions.parse(stream.options(tmp_path, **given))


@asynccontextmanager
async def lanes(options, store, count) -> AsyncIterator[tuple[Switchboard, list[asyncio.Task[int]]]]:
    """A generation of so many lanes at work; they are told to stop at the end of the block."""
    generation, read_with = await begin_generation(options, store, count, CLOCK)
    switchboard = Switchboard("127.0.0.1", "127.0.0.1", lambda: None)
    job = await switchboard.open(read_with, generation)
    tasks = [asyncio.create_task(live_in_lane(job, lane)) for lane in range(count)]
    try:
        yield switchboard, tasks
        switchboard.stop_lanes()
        await asyncio.gather(*tasks)
    finally:
        await switchboard.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read(query: Query, count: int) -> None:
    """Until the query has so many rows."""
    async with asyncio.timeout(60):
        while query.log[-1].records < count:
            await query.run_batch()
            await asyncio.sleep(0.02)


def rows(query: Query) -> int:
    taken = [row for batch in query.batches.values() for task in batch for row in task]
    assert len(taken) == len(set(taken)), "duplicates"
    return len(taken)


@pytest.mark.parametrize(("publisher", "starts"), [("POLLING", (2, 3, 1)), ("EFO", (2,))])
async def test_every_record_once_through_splits_and_changes_of_the_number_of_lanes(
    stream, store, tmp_path, publisher, starts
):
    fan_out = {"flink.stream.efo.consumername": "lanes"} if publisher == "EFO" else {}
    options = options_of(stream, tmp_path, **{"flink.stream.recordpublisher": publisher, **fan_out})
    query = Query(store)
    await query.start()
    for count in starts:
        stream.put(300)
        async with lanes(options, store, count):
            await read(query, stream.count)
            stream.split(0)
            stream.put(200)
            await read(query, stream.count)
    await query.run_all()
    assert rows(query) == stream.count
    assert len({shard for batch in query.batches.values() for task in batch for shard, _ in task}) == 2 + 2 * len(
        starts
    )


async def test_w8_event_times_of_what_lanes_emit_lie_within_the_lookahead(stream, store, tmp_path):
    stream.put(400, lambda n: n * 100, shard=0)
    stream.put(400, lambda n: 20_000 + (n - 400) * 100, shard=1)
    options = options_of(
        stream, tmp_path, **{"flink.watermark.lookahead.millis": LOOKAHEAD, "flink.shard.idle.interval": 1000}
    )
    query = Query(store)
    await query.start()
    async with lanes(options, store, 2):
        await read(query, 800)
    spreads = []
    for name in await store.names("manifests/"):
        manifest = Manifest.from_bytes(await store.get(name))
        if manifest.file is not None:
            table = pa.ipc.open_stream(await store.get(manifest.file)).read_all()
            latest = max(json.loads(data)["at"] for data in table["data"].to_pylist())
            assert manifest.watermark is not None
            spreads.append(latest - manifest.watermark)
    assert max(spreads) <= LOOKAHEAD
    assert rows(query) == 800


async def test_s2_a_lane_that_comes_later_reads_the_child_of_a_shard_that_another_lane_has_finished(
    stream, store, tmp_path
):
    """It begins where the generation began, and hears of the end from the tracker."""
    query = Query(store)
    await query.start()
    options = options_of(stream, tmp_path)
    generation, read_with = await begin_generation(options, store, 2, CLOCK)
    switchboard = Switchboard("127.0.0.1", "127.0.0.1", lambda: None)
    job = await switchboard.open(read_with, generation)
    stream.put(100)
    stream.merge(0)  # each lane has a parent of the child
    stream.put(100)
    tasks = [asyncio.create_task(live_in_lane(job, 0))]
    try:
        await read(query, 1)
        await until_a_shard_has_ended(store)
        tasks.append(asyncio.create_task(live_in_lane(job, 1)))
        await read(query, 200)
        switchboard.stop_lanes()
        await asyncio.gather(*tasks)
    finally:
        await switchboard.close()
        await asyncio.gather(*tasks, return_exceptions=True)
    await query.run_all()
    assert rows(query) == 200


async def until_a_shard_has_ended(store) -> None:
    async with asyncio.timeout(60):
        while True:
            for name in await store.names("manifests/"):
                state = Manifest.from_bytes(await store.get(name)).state or {"shards": {}}
                if any(entry.get("ended") for entry in state["shards"].values()):
                    return
            await asyncio.sleep(0.02)


async def test_lanes_whose_driver_is_gone_end_with_what_they_have_read_in_the_spool(stream, store, tmp_path):
    stream.put(300)
    options = options_of(stream, tmp_path)
    query = Query(store)
    await query.start()
    async with lanes(options, store, 2) as (switchboard, tasks):
        await read(query, 300)
        await switchboard.close()
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended] == [DriverGoneError, DriverGoneError]
        tasks.clear()
    await query.run_all()
    assert rows(query) == 300


async def test_s6_lanes_of_an_older_start_are_fenced_and_their_driver_is_told(stream, store, tmp_path):
    options = options_of(stream, tmp_path)
    query = Query(store)
    await query.start()
    async with lanes(options, store, 1) as (switchboard, old):
        stream.put(100)
        await read(query, 100)
        async with lanes(options, store, 2):
            stream.put(100)
            await read(query, 200)
            async with asyncio.timeout(60):
                (ended,) = await asyncio.gather(*old, return_exceptions=True)
        assert isinstance(ended, FencedError)
        old.clear()
        assert ["newer start" in failure.reason for failure in switchboard.failures] == [True]
        assert not switchboard.failures[0].is_fatal
    await query.run_all()
    assert rows(query) == 200


async def test_p3_latest_means_when_the_job_was_started_for_every_lane_and_start(stream, store, tmp_path):
    stream.put(50)
    options = options_of(stream, tmp_path, **{"flink.stream.initpos": "LATEST"})
    await asyncio.sleep(1.1)  # the service's clock comes in whole seconds
    generation, _ = await begin_generation(options, store, 2, CLOCK)
    pinned = generation.state["pinnedStart"]
    assert pinned
    stream.put(70)
    query = Query(store)
    await query.start()
    async with lanes(options, store, 3):
        await read(query, 70)
    assert rows(query) == 70


async def test_a_task_that_sees_another_place_than_the_driver_fails_for_good(stream, store, tmp_path):
    generation, read_with = await begin_generation(options_of(stream, tmp_path), store, 1, CLOCK)
    cancelled = asyncio.Event()
    loop = asyncio.get_running_loop()
    switchboard = Switchboard("127.0.0.1", "127.0.0.1", lambda: loop.call_soon_threadsafe(cancelled.set))
    job = await switchboard.open(replace(read_with, metadata_location=str(tmp_path / "own")), generation)
    try:
        with pytest.raises(ConfigurationError, match="a task cannot see the driver's spool"):
            await live_in_lane(job, 0)
        async with asyncio.timeout(60):
            await cancelled.wait()
        assert switchboard.failures[0].is_fatal
        await store.delete([generation_name(1)])  # read and purged long ago
        with pytest.raises(FencedError, match="long over"):
            await live_in_lane(replace(job, options=read_with), 0)
    finally:
        await switchboard.close()


async def test_a_spool_that_cannot_be_written_says_so(stream, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StateError, match="cannot be used"):
            await begin_generation(options_of(stream, tmp_path), FolderObjects(tmp_path / "file"), 1, CLOCK)
