"""A log that has not any more what the query is to read says so: it is never waited for."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import MemoryObjects, Query, opened

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def query_with_history(store: MemoryObjects) -> Query:
    """So many records, each in a batch of its own."""
    query = Query(store, retain=1)
    await query.start()
    fetcher = await opened(store, SHARDS)
    for records in range(1, 8):
        await fetcher.read_all(records)
        await query.run_all()
    return query


async def go_on_from(query: Query, batch: int) -> None:
    """As with a checkpoint that was copied when that batch was the last."""
    query.log, query.batches = query.log[: batch + 1], {}
    query.planner = type(query.planner)(query._store, query.planner.clock, query.planner.retain)
    await query.run_all()


async def test_s5_a_checkpoint_of_batches_ago_is_refused_and_does_not_wait_for_ever():
    store = MemoryObjects()
    with pytest.raises(StateError, match="is gone: the checkpoint is older than what the log keeps"):
        await go_on_from(await query_with_history(store), 2)


async def test_a_checkpoint_within_what_is_kept_goes_on():
    store = MemoryObjects()
    query = await query_with_history(store)
    before = query.batches
    last = len(query.log) - 2
    await go_on_from(query, last)
    assert query.batches == {last + 1: before[last + 1]}


async def test_s5_an_entry_that_was_removed_is_not_waited_for_while_others_come():
    store = MemoryObjects()
    query = await query_with_history(store)
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(20)
    await fetcher.read_all(21)
    lost = (await store.names(ENTRIES))[-2]
    await store.delete([lost])
    with pytest.raises(StateError, match=f"{lost} of the write-ahead log is gone"):
        await query.run_all()


async def test_s5_a_log_that_is_deleted_under_a_query_ends_it():
    store = MemoryObjects()
    query = await query_with_history(store)
    await store.delete(list(store.content))
    query.planner._checked_at = float("-inf")
    with pytest.raises(StateError, match="is gone"):
        await query.run_all()
