"""The memory for unread entries does not grow with their snapshots: each entry has one of all shards."""

from __future__ import annotations

import tracemalloc

import pytest

from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.wal_planner import MAX_QUIET_ENTRIES, Limits, WalPlanner
from recordpublisher.plugins.spark.continuous.wal_writer import WalWriter

from fakes.spark.continuous import CLOCK, NO_LIMIT, MemoryWriteOnceStore, no_shards

SHARDS, ENTRY_COUNT = 300, 2 * MAX_QUIET_ENTRIES
ONE_SNAPSHOT = 1000 * SHARDS
"""Bytes, about, of a snapshot in memory."""


async def filled(store: MemoryWriteOnceStore) -> None:
    writer = WalWriter(store, CLOCK)
    state = await writer.take_over(no_shards)
    shards = {f"stream/shardId-{n:012d}": {"start": "TRIM_HORIZON", "position": f"{n:056d}"} for n in range(SHARDS)}
    for _ in range(ENTRY_COUNT):
        await writer.append(None, {**state, "shards": shards}, None)


async def plan(store: MemoryWriteOnceStore) -> None:
    planner = WalPlanner(store, CLOCK, 10)
    assert await planner.next_offset(await planner.initial_offset(), Limits()) is not None


async def count_unread(store: MemoryWriteOnceStore) -> None:
    await BackPressure(NO_LIMIT).count_unread(store)


@pytest.mark.parametrize("work", [plan, count_unread])
async def test_many_entries_are_read_a_few_at_a_time(work):
    store = MemoryWriteOnceStore()
    await filled(store)
    tracemalloc.start()
    try:
        await work(store)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < ONE_SNAPSHOT * ENTRY_COUNT / 4
