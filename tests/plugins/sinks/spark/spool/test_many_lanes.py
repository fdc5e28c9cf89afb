"""Hundreds of lanes: what a start and a batch cost grows with their number, and not with its square."""

from __future__ import annotations

from collections import Counter

import pytest
from spool_model import LaterClock, MemoryObjects, opened

from recordpublisher.plugins.sinks.spark.spool.admission import Limits, admitted
from recordpublisher.plugins.sinks.spark.spool.backlog import Waiting
from recordpublisher.plugins.sinks.spark.spool.history import Step
from recordpublisher.plugins.sinks.spark.spool.lane import YOUNG_MS, Lane
from recordpublisher.plugins.sinks.spark.spool.manifest import Kind, Manifest, ShardRows


class CountingObjects(MemoryObjects):
    """Counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    async def get(self, name):
        self.calls["get"] += 1
        return await super().get(name)

    async def names(self, beginning):
        self.calls["names"] += 1
        return await super().names(beginning)


def state_of_one(lane: int, position: str) -> dict:
    shards = {f"s/{lane}": {"start": "TRIM_HORIZON", "position": position}}
    return {"version": 1, "generation": 2, "subtask": lane, "parallelism": 1, "shards": shards}


async def calls_of_a_start(lanes: int, later_ms: int = 0) -> Counter[str]:
    """Every lane is taken over and says where it stands before the next one comes."""
    store = CountingObjects()
    generation = await opened(store, lanes)
    store.calls.clear()
    for number in range(lanes):
        lane = Lane(store, generation, number, LaterClock(later_ms))
        await lane.take_over()
        await lane.append(None, state_of_one(number, "5"), None)
    return store.calls


async def test_a_start_looks_once_for_each_lane():
    assert await calls_of_a_start(200) == {"names": 200}


async def test_a_lane_that_comes_late_lists_the_others_once_and_reads_the_last_step_of_each():
    calls = await calls_of_a_start(20, YOUNG_MS)
    assert calls["names"] == 2 * 20
    assert calls["get"] == sum(range(1, 21))


@pytest.mark.parametrize("later_ms", [0, YOUNG_MS])
async def test_an_attempt_that_follows_another_goes_on_where_that_one_stood(later_ms):
    store = MemoryObjects()
    generation = await opened(store, 2)
    clock = LaterClock(later_ms)
    for number in range(2):
        lane = Lane(store, generation, number, clock)
        await lane.take_over()
        await lane.append(None, state_of_one(number, "7"), None)
    known = (await Lane(store, generation, 0, clock).take_over())["shards"]
    assert known["s/0"]["position"] == "7"
    assert set(known) == ({"s/0"} if later_ms < YOUNG_MS else {"s/0", "s/1"})


class CountedRows(dict):
    """Counts how often a step's shards are gone through."""

    looks = 0

    def __iter__(self):
        CountedRows.looks += 1
        return super().__iter__()

    def values(self):
        CountedRows.looks += 1
        return super().values()


@pytest.mark.parametrize("has_child", [False, True])
def test_a_batch_is_planned_with_a_few_looks_at_each_lane(has_child):
    lanes = 200
    CountedRows.looks = 0

    def step(lane: int) -> Step:
        parents = (f"s/{lane - 1}",) if has_child and lane else ()
        shards = CountedRows({f"s/{lane}": ShardRows(5, ("1", -1), ("5", -1), parents)})
        return Step(1, Manifest(Kind.ROWS, "token", 0, file="files/x", rows=5, payload=50, shards=shards))

    waiting = Waiting(1, (0,) * lanes, tuple((step(lane),) for lane in range(lanes)), is_over=False)
    assert sum(admitted(waiting, waiting, Limits(), 0)) == (1 if has_child else lanes)
    assert CountedRows.looks <= 4 * lanes
