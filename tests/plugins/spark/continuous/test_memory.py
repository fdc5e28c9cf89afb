"""What is remembered of a spool does not grow with the snapshots in it: each step has one, of all shards of its lane."""

from __future__ import annotations

import tracemalloc

import pytest

from recordpublisher.plugins.spark.continuous.admission import Limits
from recordpublisher.plugins.spark.continuous.lane import Lane
from recordpublisher.plugins.spark.continuous.planner import MOST_QUIET_STEPS, SpoolPlanner
from recordpublisher.plugins.spark.continuous.room import Room

from fakes.spark_continuous import CLOCK, MemoryObjects, opened

SHARDS, STEPS = 300, 2 * MOST_QUIET_STEPS
ONE_SNAPSHOT = 1000 * SHARDS
"""Bytes, about, of a snapshot in memory."""


async def filled(store: MemoryObjects) -> None:
    lane = Lane(store, await opened(store, 1), 0, CLOCK)
    state = await lane.take_over()
    shards = {f"stream/shardId-{n:012d}": {"start": "TRIM_HORIZON", "position": f"{n:056d}"} for n in range(SHARDS)}
    for _ in range(STEPS):
        await lane.append(None, {**state, "shards": shards}, None)


async def plan(store: MemoryObjects) -> None:
    planner = SpoolPlanner(store, CLOCK, 10)
    assert await planner.next_offset(await planner.initial_offset(), Limits()) is not None


async def take_over(store: MemoryObjects) -> None:
    await Room(store, 1, 0, 10**9).open()


@pytest.mark.parametrize("look", [plan, take_over])
async def test_many_steps_are_looked_at_a_few_at_a_time(look):
    store = MemoryObjects()
    await filled(store)
    tracemalloc.start()
    try:
        await look(store)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < ONE_SNAPSHOT * STEPS / 4
