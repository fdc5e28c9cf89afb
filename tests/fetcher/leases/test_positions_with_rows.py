"""Lives of a process whose sink commits: nothing of an ended life is committed, and what one has committed is published (E1, E3)."""

import asyncio
from contextlib import asynccontextmanager, suppress
from unittest.mock import AsyncMock

import pytest

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.elastic.positions_with_rows import PositionsWithRows, SinkLives
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.position_documents import PositionKey, StoredPosition
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.testing import VirtualClock, run_virtual
from recordpublisher.testing.sink_contract import batch_of

from fakes.commits.committing_sink import Table, TableSink
from fakes.memory_store import MemoryStore

A = PositionKey("orders/a", 1)


def at(sequence):
    return {A: StoredPosition(ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(sequence))))}


class Lock:
    """Stands for the emitter: between two writes."""

    records = 0

    def __init__(self):
        self.lock = asyncio.Lock()

    @asynccontextmanager
    async def between_writes(self):
        async with self.lock:
            yield


class AwayStore(MemoryStore):
    """Loses answers of writes while it is told to: they take effect, or not."""

    is_away, takes_effect = False, True

    def _write(self, name, value, expected):
        if not self.is_away:
            return super()._write(name, value, expected)
        if self.takes_effect:
            with suppress(ConflictError):
                super()._write(name, value, expected)
        raise StoreUnavailableError("away")


class Process:
    """One process, and its lives."""

    def __init__(self, table, store, entries=None):
        self.store, self.entries = store, entries
        self.sink = TableSink(table, entries)
        self.lives = SinkLives(self.sink, Lock(), VirtualClock())

    async def live(self, worker):
        positions = PositionsWithRows(
            self.lives,
            self.store,
            GroupStore(self.store),
            worker,
            job="job",
            clock=VirtualClock(),
            duration=20.0,
        )
        await positions.join()
        return positions

    async def commit(self, life, sequence):
        """As a checkpoint does."""
        await life.settle()
        await life.stage()
        await life.settle()
        await life.commit(at(sequence), is_checkpoint=True)
        await life.publish()


def record(worker, life):
    return WorkerRecord(worker, 1, is_sealed=True, parts=life.parts)


@pytest.fixture(params=["entries with the rows", "entries in the store of the group"])
def places(request):
    """The store of the group, and that of entries."""
    return AwayStore(), AwayStore() if request.param == "entries with the rows" else None


def test_who_seals_a_life_publishes_what_it_has_committed(places):
    async def story():
        table = Table()
        dead, taker = Process(table, *places), Process(table, *places)
        life, other = await dead.live("w1"), await taker.live("w2")
        await dead.sink.write(batch_of("a", 1, 2))
        await life.stage()
        await life.commit(at(2), is_checkpoint=True)
        assert table.rows == []
        assert await other.seal(record("w1", life)) == at(2)
        assert table.rows == [b"1", b"2"]
        await dead.sink.write(batch_of("a", 3))
        with pytest.raises(FencedError):
            await dead.commit(life, 3)
        assert await other.seal(record("w1", life)) == at(2)
        assert table.rows == [b"1", b"2"]

    run_virtual(story())


def test_cleaning_waits_until_everything_is_published_and_leaves_nothing(places):
    async def story():
        table = Table()
        dead, cleaner = Process(table, *places), Process(table, *places)
        life, other = await dead.live("w1"), await cleaner.live("w2")
        await dead.sink.write(batch_of("a", 1))
        await life.stage()
        await life.commit(at(1), is_checkpoint=True)
        await dead.sink.write(batch_of("a", 2))
        await life.stage()
        publish, cleaner.sink.publish = cleaner.sink.publish, away
        with pytest.raises(StoreUnavailableError):
            await other.delete("w1")
        assert len(table.staged) == 2, "what is named is not published yet: it stays"
        cleaner.sink.publish = publish
        await other.delete("w1")
        assert (table.rows, table.staged) == ([b"1"], {})
        await GroupStore(places[0]).delete_worker("w1")
        with pytest.raises(FencedError):
            await dead.commit(life, 2)
        assert (table.rows, await other.read(record("w1", life))) == ([b"1"], {})

    run_virtual(story())


def test_the_record_of_a_worker_stays_until_the_sink_has_forgotten_it(places):
    """A process that dies before its next commit would leave what the table remembers for ever."""

    async def story():
        dead, cleaner = Process(Table(), *places), Process(Table(), *places)
        await dead.live("w1")
        other = await cleaner.live("w2")
        asked = []

        async def forget(is_forgotten):
            asked.append(is_forgotten("w1"))
            return len(asked) > 2

        cleaner.sink.forget_ended_lives = forget
        cleaner.sink.discard = counted = AsyncMock()
        group = GroupStore(places[0])
        await group.own_record("w1").write(WorkerRecord("w1", 1, is_sealed=True))
        answers = [await other.delete("w1") for _ in range(3)]
        left = [name for store in places if store for name in store.values if "w1" in name]
        return asked, answers, left, counted.await_count

    assert run_virtual(story()) == ([True] * 3, [False, False, True], ["group/workers/w1"], 1)


def test_what_is_prepared_is_stored_without_the_rows_that_are_staged(places):
    """Its positions do not cover them: whoever takes over from this entry writes them."""

    async def story():
        table = Table()
        dead, taker = Process(table, *places), Process(table, *places)
        life, other = await dead.live("w1"), await taker.live("w2")
        await dead.sink.write(batch_of("a", 1))
        await life.stage()
        await life.commit(at(0))
        assert await other.seal(record("w1", life)) == at(0)
        return table.rows

    assert run_virtual(story()) == []


async def away(staged):
    raise StoreUnavailableError("away")


def test_a_slow_stage_of_a_life_ends_before_the_next_life_begins(places):
    """What is written for the next one is committed by it alone."""

    async def story():
        table = Table()
        process = Process(table, *places)
        life = await process.live("w1")
        await process.sink.write(batch_of("a", 1))

        async def checkpoint():
            async with process.lives._emitter.between_writes():
                await asyncio.sleep(100)
                await life.stage()

        slow = asyncio.ensure_future(checkpoint())
        await asyncio.sleep(1)
        following = asyncio.ensure_future(process.live("w2"))
        await asyncio.sleep(1)
        assert not following.done()
        await slow
        second = await following
        await process.sink.write(batch_of("a", 1))
        with pytest.raises(FencedError, match="worker w1 has ended: worker w2 of the same process uses the sink now"):
            await life.stage()
        await process.commit(second, 1)
        return table

    table = run_virtual(story())
    assert table.rows == [b"1"]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_commit_without_an_answer_is_repeated_and_ends_its_life_after_a_lease(places, takes_effect):
    async def story():
        table = Table()
        process = Process(table, *places)
        life = await process.live("w1")
        store = process.entries or process.store
        store.is_away, store.takes_effect = True, takes_effect
        await process.sink.write(batch_of("a", 1))
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await process.commit(life, 1)
            await asyncio.sleep(5)
        store.is_away = False
        await process.commit(life, 1)
        assert table.rows == [b"1"]
        store.is_away = True
        await process.sink.write(batch_of("a", 2))
        with pytest.raises(StoreUnavailableError):
            await process.commit(life, 2)
        await asyncio.sleep(21)
        with pytest.raises(FencedError, match="memory did not answer for 20 s"):
            await process.commit(life, 2)
        store.is_away = False
        successor = await process.live("w2")
        found = await successor.seal(record("w1", life))
        return table, found

    table, found = run_virtual(story())
    assert (table.rows, found) == (([b"1", b"2"], at(2)) if takes_effect else ([b"1"], at(1)))


def test_a_join_without_an_answer_is_made_once_more():
    async def story():
        table, entries = Table(), AwayStore()
        process = Process(table, MemoryStore(), entries)
        entries.is_away = True
        with pytest.raises(StoreUnavailableError):
            await process.live("w1")
        entries.is_away = False
        life = await process.live("w1x")
        await process.sink.write(batch_of("a", 1))
        await process.commit(life, 1)
        return table.rows

    assert run_virtual(story()) == [b"1"]


def test_positions_of_rows_in_another_table_are_refused():
    async def story():
        store, table = MemoryStore(), Table()
        first = Process(table, store)
        life = await first.live("w1")
        second = Process(Table(), store)
        second.sink.target = lambda: "another table"
        other = await second.live("w2")
        with pytest.raises(StateError, match="belong to rows in TableSink, and this process writes to another table"):
            await other.seal(record("w1", life))

    run_virtual(story())


@pytest.mark.parametrize("has_committed", [False, True])
def test_documents_of_a_worker_of_another_table_are_deleted_only_if_they_are_empty(has_committed):
    async def story():
        store = MemoryStore()
        first = Process(Table(), store)
        life = await first.live("w1")
        if has_committed:
            await first.commit(life, 1)
        second = Process(Table(), store)
        second.sink.target = lambda: "another table"
        return await (await second.live("w2")).delete("w1")

    if has_committed:
        with pytest.raises(StateError, match="belong to rows in TableSink"):
            run_virtual(story())
    else:
        assert run_virtual(story())


def test_nothing_is_written_while_nothing_changes(places):
    async def story():
        process = Process(Table(), *places)
        life = await process.live("w1")
        await process.commit(life, 1)
        writes = (process.entries or process.store).writes
        for _ in range(3):
            await process.commit(life, 1)
        return (process.entries or process.store).writes - writes

    assert run_virtual(story()) == 0
