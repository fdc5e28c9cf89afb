"""What the driver decides for a query over a spool, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordpublisher.plugins.spark.continuous.admission import Limits
from recordpublisher.plugins.spark.continuous.names import failure_name, manifests_of
from recordpublisher.plugins.spark.continuous.offset import SpoolOffset
from recordpublisher.plugins.spark.continuous.planner import MOST_QUIET_STEPS, SpoolPlanner
from recordpublisher.plugins.spark.source.batch_offset import BatchOffset
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import CLOCK, Fetcher, MemoryObjects, Query, opened

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def spool(records: int = 5, lanes: int = 1) -> MemoryObjects:
    """With so many records of every shard."""
    store = MemoryObjects()
    generation = await opened(store, lanes)
    for lane in range(lanes):
        await fetch(store, generation, lane, records)
    return store


async def fetch(store, generation, lane, records) -> Fetcher:
    fetcher = Fetcher(store, generation, lane, SHARDS)
    await fetcher.open()
    await fetcher.read_all(records)
    return fetcher


async def read(store: MemoryObjects, **more) -> Query:
    query = Query(store, **more)
    await query.start()
    await query.run_all()
    return query


async def test_a_batch_is_of_one_generation_and_goes_over_seals_without_one():
    store = await spool(5)
    await fetch(store, await opened(store, 2), 0, 8)
    query = await read(store)
    assert [offset.generation for offset in query.log] == [0, 1, 2]
    assert query.rows("a") == list(range(8))


async def test_nothing_new_is_no_batch_and_a_replay_is_the_same():
    query = await read(await spool(5))
    assert await query.run_batch() is False
    await query.start()  # reads the last batch again, and compares


async def test_many_steps_without_rows_are_passed_over_by_an_empty_batch():
    store = await spool(0)
    generation = await opened(store, 1)
    for _ in range(MOST_QUIET_STEPS):
        await Fetcher(store, generation, 0, SHARDS).open()
    query = await read(store)
    assert len(query.log) == 2
    assert query.log[-1].records == 0


async def test_an_available_now_run_ends_with_what_was_there_at_its_start():
    store = await spool(5)
    query = Query(store)
    await query.start()
    await query.planner.stop_here()
    await fetch(store, await opened(store, 1), 0, 9)
    await query.run_all()
    assert query.rows("a") == list(range(5))
    await query.start()
    await query.run_all()
    assert query.rows("a") == list(range(9))


async def test_committed_batches_are_forgotten_but_for_the_last_and_for_where_a_lane_stands():
    store = MemoryObjects()
    generation = await opened(store, 1)
    fetcher = await fetch(store, generation, 0, 1)
    query = Query(store, retain=1)
    await query.start()
    for records in range(2, 12):
        await query.run_all()
        await fetcher.read_all(records)
    await query.run_all()
    kept = sum(name.startswith("files/") for name in store.content)
    assert kept <= 4
    assert len(await store.names("read/")) == 1
    again = Fetcher(store, generation, 0, SHARDS)
    await again.open()
    await again.read_all(20)
    await query.run_all()
    assert query.rows("a") == list(range(20))


async def test_a_lane_that_was_silent_for_long_still_knows_where_it_stands():
    store = MemoryObjects()
    generation = await opened(store, 2)
    quiet, busy = await fetch(store, generation, 0, 5), await fetch(store, generation, 1, 5)
    query = Query(store, retain=1)
    await query.start()
    for records in range(6, 12):
        await query.run_all()
        await busy.read_all(records)
    del quiet
    await fetch(store, generation, 0, 12)
    await query.run_all()
    assert query.rows("a") == list(range(12))


async def test_what_a_zombie_puts_where_others_were_forgotten_is_read_by_nobody():
    store = MemoryObjects()
    generation = await opened(store, 1)
    zombie = await fetch(store, generation, 0, 2)
    fetcher = await fetch(store, generation, 0, 2)
    query = Query(store, retain=1)
    await query.start()
    for records in range(3, 10):
        await query.run_all()
        await fetcher.read_all(records)
    first = (await store.names(manifests_of(1)))[0]
    await zombie.read_all(4)  # its place is free again
    assert (await store.names(manifests_of(1)))[0] < first
    await query.run_all()
    assert query.rows("a") == list(range(9))


async def test_a_spool_is_of_one_query():
    store = await spool(5)
    await read(store)
    with pytest.raises(StateError, match="the spool of another query"):
        await read(store)


async def test_of_two_queries_that_begin_at_once_one_has_the_spool():
    store = await spool(5)
    planners = [SpoolPlanner(store, CLOCK, 1) for _ in range(2)]
    starts = [await planner.initial_offset() for planner in planners]
    ends = [await planner.next_offset(start, Limits()) for planner, start in zip(planners, starts, strict=True)]
    assert await planners[0].files(starts[0], ends[0])
    with pytest.raises(StateError, match="the spool of another query"):
        await planners[1].files(starts[1], ends[1])


async def test_a_listing_that_misses_a_step_hides_what_is_behind_it():
    class Hasty(MemoryObjects):
        async def names(self, beginning):
            found = await super().names(beginning)
            return found[:2] + found[3:] if beginning == manifests_of(1) else found

    store, hasty = MemoryObjects(), Hasty()
    hasty.content = store.content
    fetcher = await fetch(store, await opened(store, 1), 0, 3)
    await fetcher.read_all(6)
    query = await read(hasty)
    assert query.rows("a") == []
    query._store = store
    await query.start()
    await query.run_all()
    assert query.rows("a") == list(range(6))


async def test_a_checkpoint_that_knows_another_spool_is_refused():
    query = await read(await spool(5))
    query._store = await spool(7)
    with pytest.raises(StateError, match="not the spool that this checkpoint has read"):
        await query.start()


async def test_a_batch_is_never_read_again_with_fewer_rows():
    store = await spool(5)
    query = await read(store)
    name = (await store.names(manifests_of(1)))[1]
    await store.delete([name])
    with pytest.raises(StateError, match=f"{name} is gone: .* tidied up by hand"):
        await query.start()


async def test_fetchers_that_have_given_up_end_the_query_once_everything_is_read():
    store = await spool(5)
    await store.put(failure_name(1), b"access denied")
    query = Query(store)
    await query.start()
    with pytest.raises(StateError, match="the fetchers have given up: access denied"):
        await query.run_all()
    assert query.rows("a") == list(range(5))


async def test_figures_tell_of_the_last_batch():
    store = await spool(5, lanes=2)
    planner = SpoolPlanner(store, CLOCK, 1)
    await planner.next_offset(await planner.initial_offset(), Limits(rows=5))
    told = {key: planner.figures[key] for key in ("batch", "generation", "lanes", "files", "records", "waitingRecords")}
    assert told == {"batch": 1, "generation": 1, "lanes": 2, "files": 1, "records": 5, "waitingRecords": 5}


def test_offsets_of_another_mode_and_of_a_newer_release_are_refused():
    offset = SpoolOffset("spool", "query", 3, 1, (4, 5), 100)
    assert SpoolOffset.from_json(offset.to_json()) == offset
    assert SpoolOffset.from_bytes(offset.to_bytes()) == offset
    with pytest.raises(StateError, match="in mode BATCH"):
        SpoolOffset.from_json({"v": 1, "query": "q"})
    with pytest.raises(StateError, match="upgrade"):
        SpoolOffset.from_json({**offset.to_json(), "spoolVersion": 2})
    with pytest.raises(StateError, match="cannot be read"):
        SpoolOffset.from_json({"spoolVersion": 1, "lanes": [1]})
    with pytest.raises(StateError, match="mode CONTINUOUS"):
        BatchOffset.from_json(replace(offset).to_json())
