"""A spool that has not any more what the query is to read says so: it is never waited for."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.names import manifests_of
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import Fetcher, MemoryObjects, Query, opened

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def read_on(store: MemoryObjects, query: Query, generation, until: int) -> None:
    """So many records, each in a batch of its own."""
    fetchers = [Fetcher(store, generation, lane, SHARDS) for lane in range(generation.lanes)]
    for fetcher in fetchers:
        await fetcher.open()
    for records in range(1, until):
        for fetcher in fetchers:
            await fetcher.read_all(records)
        await query.run_all()


async def query_with_history(store: MemoryObjects, lanes: int = 1) -> Query:
    query = Query(store, retain=1)
    await query.start()
    await read_on(store, query, await opened(store, lanes), 8)
    return query


async def go_on_from(query: Query, batch: int) -> None:
    """As with a checkpoint that was copied when that batch was the last."""
    query.log, query.batches = query.log[: batch + 1], {}
    query.planner = type(query.planner)(query._store, query.planner.clock, query.planner.retain)
    await query.run_all()


async def test_s5_a_checkpoint_of_batches_ago_is_refused_and_does_not_wait_for_ever():
    store = MemoryObjects()
    with pytest.raises(StateError, match="is gone: the checkpoint is older than what the spool keeps"):
        await go_on_from(await query_with_history(store), 2)


async def test_s5_a_checkpoint_of_a_generation_that_is_forgotten_is_refused():
    store = MemoryObjects()
    query = await query_with_history(store)
    await read_on(store, query, await opened(store, 2), 20)
    with pytest.raises(StateError, match="older than what the spool keeps"):
        await go_on_from(query, 2)


async def test_a_checkpoint_within_what_is_kept_goes_on():
    store = MemoryObjects()
    query = await query_with_history(store)
    before = query.batches
    last = len(query.log) - 2
    await go_on_from(query, last)
    assert query.batches == {last + 1: before[last + 1]}


async def test_s5_a_step_that_was_removed_is_not_waited_for_while_others_go_on():
    store = MemoryObjects()
    query = await query_with_history(store, lanes=2)
    generation = await opened(store, 2)
    fetchers = [Fetcher(store, generation, lane, SHARDS) for lane in range(2)]
    for fetcher in fetchers:
        await fetcher.open()
        await fetcher.read_all(20)
        await fetcher.read_all(21)
    lost = (await store.names(manifests_of(2, 0)))[1]
    await store.delete([lost])
    with pytest.raises(StateError, match=f"{lost} is gone"):
        await query.run_all()


async def test_s5_a_spool_that_is_deleted_under_a_query_ends_it():
    store = MemoryObjects()
    query = await query_with_history(store)
    await store.delete(list(store.content))
    query.planner._looked_at = float("-inf")
    with pytest.raises(StateError, match="is gone"):
        await query.run_all()
