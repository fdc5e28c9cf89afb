"""A log without the entries that the query needs is an error: the query never waits for them."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import MemoryWriteOnceStore, Query, opened

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def query_with_history(store: MemoryWriteOnceStore) -> Query:
    """A query that has read some records, each in its own batch."""
    query = Query(store, retain=1)
    await query.start()
    fetcher = await opened(store, SHARDS)
    for records in range(1, 8):
        await fetcher.read_all(records)
        await query.run_all()
    return query


async def go_on_from(query: Query, batch: int) -> None:
    """Continue as from a copy of the checkpoint that was made after that batch."""
    query.log, query.batches = query.log[: batch + 1], {}
    query.planner = type(query.planner)(query._store, query.planner.clock, query.planner.retain)
    await query.run_all()


async def test_s5_a_checkpoint_older_than_the_log_is_refused_and_does_not_wait_forever():
    store = MemoryWriteOnceStore()
    with pytest.raises(StateError, match="is gone: the checkpoint is older than what the log keeps"):
        await go_on_from(await query_with_history(store), 2)


async def test_a_checkpoint_that_the_log_still_covers_continues():
    store = MemoryWriteOnceStore()
    query = await query_with_history(store)
    before = query.batches
    last = len(query.log) - 2
    await go_on_from(query, last)
    assert query.batches == {last + 1: before[last + 1]}


async def test_s5_a_removed_entry_is_an_error_while_new_ones_arrive():
    store = MemoryWriteOnceStore()
    query = await query_with_history(store)
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(20)
    await fetcher.read_all(21)
    lost = (await store.names(ENTRIES))[-2]
    await store.delete([lost])
    with pytest.raises(StateError, match=f"{lost} of the write-ahead log is gone"):
        await query.run_all()


async def test_s5_deleting_the_log_ends_the_query():
    store = MemoryWriteOnceStore()
    query = await query_with_history(store)
    await store.delete(list(store.content))
    query.planner._checked_at = float("-inf")
    with pytest.raises(StateError, match="is gone"):
        await query.run_all()
