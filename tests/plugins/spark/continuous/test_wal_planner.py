"""The plans of a query over a write-ahead log, and the logs and offsets that it refuses."""

from __future__ import annotations

import json

import pytest

from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES, FILES, WalEntry
from recordpublisher.plugins.spark.continuous.wal_identity import IDENTITY, VERSION, wal_id
from recordpublisher.plugins.spark.continuous.wal_offset import WalOffset
from recordpublisher.plugins.spark.continuous.wal_planner import MAX_QUIET_ENTRIES, Limits, WalPlanner, last_of_batch
from recordpublisher.plugins.spark.source.batch_offset import BatchOffset
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import CLOCK, MemoryWriteOnceStore, Query, opened

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def log_with(records: int = 5) -> MemoryWriteOnceStore:
    """A log with this many records of every shard."""
    store = MemoryWriteOnceStore()
    await (await opened(store, SHARDS)).read_all(records)
    return store


async def read(store: MemoryWriteOnceStore, **more) -> Query:
    query = Query(store, **more)
    await query.start()
    await query.run_all()
    return query


def unread(*rows: int) -> dict[int, WalEntry]:
    """Entries after the third, with these numbers of rows."""
    return {number: WalEntry("w", 0, {}, rows=count, payload=10 * count) for number, count in enumerate(rows, 4)}


def test_without_limits_a_batch_has_all_entries():
    assert last_of_batch(unread(5, 5, 0), Limits()) == 6


def test_a_batch_has_whole_files_up_to_the_limit_and_at_least_one():
    assert last_of_batch(unread(50, 50, 50), Limits(rows=100)) == 5
    assert last_of_batch(unread(50, 50, 50), Limits(rows=99)) == 4
    assert last_of_batch(unread(50, 50, 50), Limits(rows=1)) == 4
    assert last_of_batch(unread(50, 50, 50), Limits(payload=1000)) == 5


def test_entries_without_rows_do_not_count_against_the_limits():
    assert last_of_batch(unread(0, 50, 0, 50), Limits(rows=50)) == 6


async def test_a_batch_may_span_the_start_of_another_fetcher():
    store = await log_with(5)
    await (await opened(store, SHARDS)).read_all(8)
    query = await read(store)
    assert [offset.records for offset in query.log] == [0, 16]
    assert query.rows("a") == list(range(8))


async def test_without_new_rows_there_is_no_batch_and_a_replay_has_the_same_files():
    query = await read(await log_with(5))
    assert await query.run_batch() is False
    await query.start()  # reads the last batch again, and compares


async def test_an_empty_batch_reads_past_many_entries_without_rows():
    store = await log_with(0)
    for _ in range(MAX_QUIET_ENTRIES):
        await opened(store, SHARDS)
    query = await read(store)
    assert len(query.log) > 1
    assert query.log[-1].records == 0


async def test_committed_batches_are_purged_except_the_retained_ones_and_the_last_entry():
    store = MemoryWriteOnceStore()
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(1)
    query = Query(store, retain=1)
    await query.start()
    for records in range(2, 12):
        await query.run_all()
        await fetcher.read_all(records)
    await query.run_all()
    assert len(await store.names(FILES)) <= 4
    assert len(await store.names(ENTRIES)) <= 4
    again = await opened(store, SHARDS)
    await again.read_all(20)
    await query.run_all()
    assert query.rows("a") == list(range(20))


async def test_an_entry_that_a_zombie_puts_under_a_purged_number_is_never_read():
    store = MemoryWriteOnceStore()
    zombie = await opened(store, SHARDS)
    await zombie.read_all(2)
    fetcher = await opened(store, SHARDS)
    query = Query(store, retain=1)
    await query.start()
    for records in range(3, 10):
        await query.run_all()
        await fetcher.read_all(records)
    first = (await store.names(ENTRIES))[0]
    await zombie.read_all(4)  # its number is free again
    assert (await store.names(ENTRIES))[0] < first
    await query.run_all()
    assert query.rows("a") == list(range(9))


async def test_a_log_belongs_to_one_query():
    store = await log_with(5)
    await read(store)
    with pytest.raises(StateError, match="the write-ahead log of another query"):
        await read(store)


async def test_of_two_queries_that_start_at_once_one_gets_the_log():
    store = await log_with(5)
    planners = [WalPlanner(store, CLOCK, 1) for _ in range(2)]
    starts = [await planner.initial_offset() for planner in planners]
    ends = [await planner.next_offset(start, Limits()) for planner, start in zip(planners, starts, strict=True)]
    assert await planners[0].files(starts[0], ends[0])
    with pytest.raises(StateError, match="the write-ahead log of another query"):
        await planners[1].files(starts[1], ends[1])


async def test_entries_after_one_that_a_listing_missed_wait_for_the_next_listing():
    class IncompleteListing(MemoryWriteOnceStore):
        async def names(self, prefix):
            found = await super().names(prefix)
            return found[:2] + found[3:] if prefix == ENTRIES else found

    store, incomplete = MemoryWriteOnceStore(), IncompleteListing()
    incomplete.content = store.content
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(3)
    await fetcher.read_all(6)
    query = await read(incomplete)
    assert query.rows("a") == []
    query._store = store
    await query.start()
    await query.run_all()
    assert query.rows("a") == list(range(6))


async def test_a_checkpoint_of_another_log_is_refused():
    query = await read(await log_with(5))
    query._store = await log_with(7)
    with pytest.raises(StateError, match="does not have the write-ahead log of this checkpoint"):
        await query.start()


async def test_a_batch_is_never_read_again_with_fewer_rows():
    store = await log_with(5)
    query = await read(store)
    name = (await store.names(ENTRIES))[-2]
    await store.delete([name])
    with pytest.raises(StateError, match=f"{name} of the write-ahead log is gone"):
        await query.start()


def test_offsets_of_another_mode_and_of_another_version_are_refused():
    offset = WalOffset("wal", "query", 3, 4, 100)
    assert WalOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    with pytest.raises(StateError, match="in mode BATCH"):
        WalOffset.from_json({"v": 1, "query": "q"})
    with pytest.raises(StateError, match="offsets of version 3, this release reads 2: upgrade"):
        WalOffset.from_json({**offset.to_json(), "walVersion": 3})
    with pytest.raises(StateError, match="offsets of version 1, this release reads 2: begin with a new checkpointLoc"):
        WalOffset.from_json({"spoolVersion": 1, "spool": "s", "query": "q", "lanes": [1]})
    with pytest.raises(StateError, match="cannot be read"):
        WalOffset.from_json({"walVersion": 2, "entries": [1]})
    for old_or_new in (offset.to_json(), {"spoolVersion": 1}):
        with pytest.raises(StateError, match="mode CONTINUOUS"):
            BatchOffset.from_json(old_or_new)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("spool/id", b"0123", "format version 1, this release reads version 2: begin with a new checkpointLocation"),
        (IDENTITY, json.dumps({"version": VERSION + 1, "id": "x"}).encode(), "format version 3.*: upgrade"),
        (IDENTITY, b"no JSON", "cannot be read"),
    ],
)
async def test_a_log_of_another_format_version_is_refused(name, content, words):
    store = MemoryWriteOnceStore()
    await store.put(name, content)
    with pytest.raises(StateError, match=words):
        await wal_id(store)
    assert list(store.content) == [name]
