"""Back-pressure: the fetcher waits while too many rows are unread by the query, and only then."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import Fetcher, MemoryWriteOnceStore, Query, opened

SHARDS = [Shard("s", "a")]


class FastClock:
    """A clock on which ten seconds pass between two calls."""

    seconds = 0.0

    def now_ms(self) -> int:
        return round(1000 * self.seconds)

    def monotonic(self) -> float:
        self.seconds += 10
        return self.seconds


async def full(store: MemoryWriteOnceStore, pressure: BackPressure, **more) -> tuple[Fetcher, asyncio.Task[None]]:
    """A fetcher with two files of 25 bytes in a log limited to 50, and a write that waits."""
    fetcher = await opened(store, SHARDS, pressure=pressure, **more)
    for _ in range(2):
        await fetcher.read(0, 5, 100)
        await fetcher.flush()
    return fetcher, await waiting_read(fetcher)


async def waiting_read(fetcher: Fetcher) -> asyncio.Task[None]:
    waiting = asyncio.create_task(fetcher.read(0, 5, 100))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    return waiting


async def test_a_full_log_accepts_rows_again_when_the_query_has_read():
    store, pressure = MemoryWriteOnceStore(), BackPressure(50)
    fetcher, waiting = await full(store, pressure)
    query = Query(store, pressure=pressure)
    await query.start()
    await query.run_all()  # the call that finds no more rows shows that everything was read
    async with asyncio.timeout(60):
        await waiting
    await fetcher.flush()
    await query.run_all()
    assert query.rows("a") == list(range(15))


async def test_a_fetcher_that_stops_does_not_wait_and_loses_nothing():
    store, pressure = MemoryWriteOnceStore(), BackPressure(50)
    fetcher, waiting = await full(store, pressure)
    pressure.release()
    async with asyncio.timeout(60):
        await waiting
    await fetcher.flush()
    query = Query(store)
    await query.start()
    await query.run_all()
    assert query.rows("a") == list(range(15))


async def test_unread_entries_of_an_earlier_start_count():
    store = MemoryWriteOnceStore()
    _, waiting = await full(store, BackPressure(50))
    waiting.cancel()
    again = await opened(store, SHARDS, pressure=BackPressure(50))
    (await waiting_read(again)).cancel()


async def test_entries_read_before_the_start_do_not_count():
    store = MemoryWriteOnceStore()
    _, waiting = await full(store, BackPressure(50))
    waiting.cancel()
    pressure = BackPressure(50)
    query = Query(store, pressure=pressure)
    await query.start()
    await query.run_all()
    again = await opened(store, SHARDS, pressure=pressure)
    async with asyncio.timeout(60):
        await again.read(0, 5, 100)


def test_an_entry_that_the_query_planned_before_the_sink_counted_it_does_not_count():
    pressure = BackPressure(50)
    pressure.read_up_to(7)
    pressure.add(7, 100)
    assert not pressure.is_full()


async def test_s6_a_fetcher_that_waits_for_an_ended_query_ends_when_another_start_takes_over():
    store = MemoryWriteOnceStore()
    _, waiting = await full(store, BackPressure(50, poll_seconds=0.01), clock=FastClock())
    await opened(store, SHARDS)
    with pytest.raises(FencedError):
        async with asyncio.timeout(60):
            await waiting
