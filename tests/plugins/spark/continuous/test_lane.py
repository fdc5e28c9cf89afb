"""A lane has one history, whoever tries to write it, and tells where the next start begins."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.generation import Generation
from recordpublisher.plugins.spark.continuous.history import last_steps, state_of
from recordpublisher.plugins.spark.continuous.lane import LOOK_SECONDS, Lane
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import CLOCK, Fetcher, MemoryObjects, Query, opened

SHARD = Shard("s", "a")


class HandClock:
    """Stands until it is moved."""

    seconds = 0.0

    def now_ms(self) -> int:
        return round(1000 * self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def state(*keys: str, generation: int = 2, **more: object) -> dict:
    shards = {key: {"start": "TRIM_HORIZON", "position": "5", **more} for key in keys}
    return {"version": 1, "generation": generation, "subtask": 0, "parallelism": 1, "shards": shards}


async def lane_of(store: MemoryObjects, generation: Generation, number: int = 0) -> Lane:
    lane = Lane(store, generation, number, CLOCK)
    await lane.take_over()
    return lane


async def test_s6_an_attempt_that_was_replaced_appends_nothing_more():
    store = MemoryObjects()
    generation = await opened(store, 1)
    old, new = await lane_of(store, generation), await lane_of(store, generation)
    with pytest.raises(FencedError, match="another attempt owns lane 0 of the spool's generation 1"):
        await old.append(None, state("s/a"), None)
    await new.append(None, state("s/a"), None)


async def test_s6_a_lane_of_an_older_start_can_neither_be_continued_nor_taken_over():
    store = MemoryObjects()
    old = await opened(store, 1)
    lane = await lane_of(store, old)
    await opened(store, 3)
    with pytest.raises(FencedError, match="a newer start of the fetchers owns lane 0"):
        await lane.append(None, state("s/a"), None)
    with pytest.raises(FencedError, match="a newer start"):
        await lane_of(store, old)


async def test_f11_nothing_is_appended_before_the_lane_is_taken_over():
    store = MemoryObjects()
    with pytest.raises(ImpossibleStateError):
        await Lane(store, await opened(store, 1), 0, CLOCK).append(None, state("s/a"), None)


async def test_s5_a_start_with_another_number_of_lanes_goes_on_where_all_lanes_ended():
    store = MemoryObjects()
    generation = await opened(store, 2)
    for number, key in enumerate(("s/a", "s/b")):
        lane = await lane_of(store, generation, number)
        await lane.append(None, state(key), None)
    wider = await opened(store, 3)
    assert set(wider.state["shards"]) == {"s/a", "s/b"}
    assert {entry["position"] for entry in wider.state["shards"].values()} == {"5"}
    assert wider.state["subtask"] == -1


async def test_s5_a_shard_that_its_lane_keeps_no_more_does_not_come_back():
    """It was read to its end and is past retention: as a shard that nobody lists it would be a gap."""
    store = MemoryObjects()
    begun = Generation(1, 2, "token", state("s/old", generation=1))
    lane = await lane_of(store, begun)
    await lane.append(None, state("s/old", "s/a"), None)
    await lane.append(None, state("s/a"), None)
    assert set(state_of(begun, await last_steps(store, begun))["shards"]) == {"s/a"}
    again = await lane_of(store, begun)
    await again.append(None, state("s/a"), None)
    assert set(state_of(begun, await last_steps(store, begun))["shards"]) == {"s/a"}


async def test_s5_a_lane_that_never_ran_leaves_its_shards_where_the_generation_began():
    store = MemoryObjects()
    begun = Generation(1, 2, "token", state("s/a", "s/b", generation=1))
    lane = await lane_of(store, begun)
    moved = state("s/a")
    moved["shards"]["s/a"]["position"] = "9"
    await lane.append(None, moved, None)
    shards = state_of(begun, await last_steps(store, begun))["shards"]
    assert {key: entry["position"] for key, entry in shards.items()} == {"s/a": "9", "s/b": "5"}


async def test_s5_ended_shards_that_no_lane_lists_any_more_are_forgotten():
    store = MemoryObjects()
    begun = Generation(1, 1, "token", state("s/gone", generation=1, ended=True))
    lane = await lane_of(store, begun)
    await lane.append(None, state("s/a"), None)
    assert set(state_of(begun, await last_steps(store, begun))["shards"]) == {"s/a"}


async def test_an_attempt_goes_on_where_the_one_before_stood():
    store = MemoryObjects()
    generation = await opened(store, 1)
    first = Fetcher(store, generation, 0, [SHARD])
    await first.open()
    await first.read(0, 4, 10)
    await first.flush()
    await first.read(0, 4, 10)  # never stored
    second = Fetcher(store, generation, 0, [SHARD])
    await second.open()
    assert second._states["s/a"].position.sequence == "3"


@pytest.mark.parametrize("lanes", [1, 2])
async def test_s6_an_attempt_that_slept_until_its_successors_steps_were_forgotten_ends_too(lanes):
    """Its place is free again, and so is the whole lane once the query is in a newer generation."""
    store, clock = MemoryObjects(), HandClock()
    generation = await opened(store, 1)
    zombie = Lane(store, generation, 0, clock)
    await zombie.take_over()
    await zombie.append(None, state(), None)
    query = Query(store, retain=1)
    await query.start()
    fetcher = Fetcher(store, generation if lanes == 1 else await opened(store, lanes), 0, [SHARD])
    await fetcher.open()
    for records in range(1, 9):
        await fetcher.read_all(records)
        await query.run_all()
    clock.seconds += LOOK_SECONDS
    with pytest.raises(FencedError, match="another attempt or a newer start"):
        await zombie.append(None, state(), None)
    await query.run_all()
    assert query.rows("a") == list(range(8))
