"""The log has one history, however many writers there are, and has the state from which the next start continues."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES, WalEntry
from recordpublisher.plugins.spark.continuous.wal_writer import OWNERSHIP_CHECK_SECONDS, WalWriter
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError, StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import CLOCK, MemoryWriteOnceStore, Query, no_shards, opened

SHARD = Shard("s", "a")


class ManualClock:
    """A clock that the test moves."""

    seconds = 0.0

    def now_ms(self) -> int:
        return round(1000 * self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def state(*keys: str) -> dict:
    shards = {key: {"start": "TRIM_HORIZON", "position": "5"} for key in keys}
    return {"version": 2, "generation": 2, "subtask": 0, "parallelism": 1, "shards": shards}


async def writer_of(store: MemoryWriteOnceStore) -> WalWriter:
    writer = WalWriter(store, CLOCK)
    await writer.take_over(no_shards)
    return writer


async def test_s6_a_writer_whose_log_was_taken_over_cannot_append():
    store = MemoryWriteOnceStore()
    old, new = await writer_of(store), await writer_of(store)
    with pytest.raises(FencedError, match="another start of this query has taken over its write-ahead log"):
        await old.append(None, state("s/a"), None)
    assert await new.append(None, state("s/a"), None) == 3


async def test_f11_nothing_is_appended_before_the_log_is_taken_over():
    with pytest.raises(ImpossibleStateError):
        await WalWriter(MemoryWriteOnceStore(), CLOCK).append(None, state("s/a"), None)


async def test_s5_a_start_continues_with_the_last_state():
    store = MemoryWriteOnceStore()
    writer = await writer_of(store)
    await writer.append(None, state("s/a", "s/b"), None)
    await writer.append(None, state("s/b"), None)  # the other one was read to its end and is past retention
    assert await WalWriter(store, CLOCK).take_over(no_shards) == state("s/b")


async def test_a_start_continues_where_the_previous_one_ended():
    store = MemoryWriteOnceStore()
    first = await opened(store, [SHARD])
    await first.read(0, 4, 10)
    await first.flush()
    await first.read(0, 4, 10)  # never stored
    second = await opened(store, [SHARD])
    assert second._states["s/a"].position.sequence == "3"


async def test_of_concurrent_starts_one_gets_the_log():
    store = MemoryWriteOnceStore()
    writers = [WalWriter(store, CLOCK) for _ in range(8)]
    await asyncio.gather(*(writer.take_over(no_shards) for writer in writers), return_exceptions=True)
    async with asyncio.timeout(60):
        appended = await asyncio.gather(
            *(writer.append(None, state("s/a"), None) for writer in writers), return_exceptions=True
        )
    assert [type(each) for each in appended].count(int) == 1
    assert all(isinstance(each, (int, FencedError)) for each in appended)


async def test_s6_a_writer_suspended_until_its_successors_entries_were_purged_is_fenced():
    """Its number is free again."""
    store, clock = MemoryWriteOnceStore(), ManualClock()
    zombie = WalWriter(store, clock)
    await zombie.take_over(no_shards)
    await zombie.append(None, state(), None)
    query = Query(store, retain=1)
    await query.start()
    fetcher = await opened(store, [SHARD])
    for records in range(1, 9):
        await fetcher.read_all(records)
        await query.run_all()
    clock.seconds += OWNERSHIP_CHECK_SECONDS
    with pytest.raises(FencedError, match="another start"):
        await zombie.append(None, state(), None)
    await query.run_all()
    assert query.rows("a") == list(range(8))


class SleepsBeforeItTakesOver(MemoryWriteOnceStore):
    """A store on which other writers act while a new start is about to put its first entry."""

    def __init__(self, store: MemoryWriteOnceStore, meanwhile) -> None:
        super().__init__()
        self.content = store.content
        self._meanwhile = meanwhile

    async def put_if_absent(self, name, content):
        if name.startswith(ENTRIES) and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return await super().put_if_absent(name, content)


@pytest.mark.parametrize("entries_before", [0, 2])
async def test_s6_a_start_suspended_until_the_number_of_its_entry_was_purged_still_takes_over(entries_before):
    """Otherwise it would append entries that nobody reads."""
    store = MemoryWriteOnceStore()
    query = Query(store, retain=1)
    await query.start()
    old = await opened(store, [SHARD]) if entries_before else None

    async def life_goes_on():
        fetcher = old or await opened(store, [SHARD])
        for records in range(1, 7):
            await fetcher.read_all(records)
            await query.run_all()
        self_of["old"] = fetcher

    self_of = {}
    new = await opened(SleepsBeforeItTakesOver(store, life_goes_on), [SHARD])
    with pytest.raises(FencedError):
        await self_of["old"].read_all(7)
    await new.read_all(8)
    await query.run_all()
    assert query.rows("a") == list(range(8))


def test_an_entry_that_cannot_be_read_is_named():
    with pytest.raises(StateError, match="an entry of the write-ahead log cannot be read"):
        WalEntry.from_bytes(b"{}")
