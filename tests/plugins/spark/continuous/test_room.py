"""Back-pressure: a full lane waits for the query, and for nothing else."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import Fetcher, MemoryObjects, Query, opened

SHARDS = [Shard("s", "a")]


async def full(store: MemoryObjects) -> tuple[Fetcher, asyncio.Task[None]]:
    """A fetcher with two files of 25 bytes in a lane for 50, and a read that waits."""
    fetcher = Fetcher(store, await opened(store, 1), 0, SHARDS, limit_bytes=50)
    await fetcher.open()
    for _ in range(2):
        await fetcher.read(0, 5, 100)
        await fetcher.flush()
    waiting = asyncio.create_task(fetcher.read(0, 5, 100))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    return fetcher, waiting


async def test_a_full_lane_goes_on_when_the_query_has_read():
    store = MemoryObjects()
    fetcher, waiting = await full(store)
    query = Query(store)
    await query.start()
    await query.run_all()  # the look that finds nothing more says that everything was read
    async with asyncio.timeout(60):
        await waiting
    await fetcher.flush()
    await query.run_all()
    assert query.rows("a") == list(range(15))


async def test_a_fetcher_that_stops_does_not_wait_for_room_and_loses_nothing():
    store = MemoryObjects()
    fetcher, waiting = await full(store)
    fetcher.sink.give_up_waiting()
    async with asyncio.timeout(60):
        await waiting
    await fetcher.flush()
    query = Query(store)
    await query.start()
    await query.run_all()
    assert query.rows("a") == list(range(15))


async def test_what_an_earlier_attempt_has_left_counts():
    store = MemoryObjects()
    fetcher, waiting = await full(store)
    waiting.cancel()
    again = Fetcher(store, fetcher.sink._lane.generation, 0, SHARDS, limit_bytes=50)
    await again.open()
    waiting = asyncio.create_task(again.read(0, 5, 100))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()


async def test_lanes_share_the_limit():
    store = MemoryObjects()
    fetcher = Fetcher(store, await opened(store, 2), 0, SHARDS, limit_bytes=50)
    await fetcher.open()
    await fetcher.read(0, 5, 100)
    await fetcher.flush()
    waiting = asyncio.create_task(fetcher.read(0, 5, 100))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()
