"""E10: a fixed number of subtasks and a group do not share a place; whoever comes second is refused, also at the same moment."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore
from recordpublisher.fetcher.leases.documents.first_group import store_as_group
from recordpublisher.fetcher.leases.documents.group_store import GroupStore, write_first_table
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses
from fakes.leases.static_process import StaticProcess
from fakes.memory_store import MemoryStore

STATES = {"s/shard-0": ShardState(StartingPosition.trim_horizon())}
TOLD_HOW = "positions show JOB --json > .* positions import JOB --from file:"


def test_a_group_is_refused_where_subtasks_keep_positions_and_told_how_to_take_them_along():
    async def story():
        group = ElasticProcesses(shards=1)
        subtask = await StaticProcess(group).start()
        with pytest.raises(StateError, match=TOLD_HOW):
            await group.join()
        await subtask.fetcher.checkpoint()
        await subtask.stop()

    run_virtual(story())


def test_a_subtask_is_refused_where_a_group_keeps_positions_and_told_how_to_take_them_along():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: process.shards == {"shard-0"})
        with pytest.raises(StateError, match=TOLD_HOW):
            await StaticProcess(group).start()
        await process.stop()
        assert not await group.store.list_names("subtask-")

    run_virtual(story())


def test_positions_of_a_group_are_not_stored_where_subtasks_keep_theirs():
    async def story():
        store = MemoryStore()
        states = SnapshotStore(store)
        generation = await states.open_generation(0)
        with pytest.raises(StateError, match="ELASTIC does not continue from these"):
            await store_as_group(store, STATES)
        await states.store(0, generation, {})
        return await store.list_names("group/")

    assert run_virtual(story()) == []


def at_the_first_write(store, name, act):
    """Run `act` when the store is about to write this name for the first time: another process is faster by one write."""
    put_if_absent = store.put_if_absent

    async def after_another(written, value):
        if written == name:
            store.put_if_absent = put_if_absent
            await act()
        return await put_if_absent(written, value)

    store.put_if_absent = after_another


def test_a_group_that_begins_at_the_same_moment_as_a_subtask_goes_and_leaves_nothing():
    async def story():
        store = MemoryStore()
        states = SnapshotStore(store)
        at_the_first_write(store, "group/leases", lambda: states.open_generation(0))
        with pytest.raises(StateError, match="ELASTIC does not continue from these"):
            await store_as_group(store, STATES)
        await SnapshotStore(store).open_generation(0)  # the subtask may be started again
        return await store.list_names("group/")

    assert run_virtual(story()) == []


def test_a_subtask_that_begins_at_the_same_moment_as_a_group_goes_and_leaves_nothing():
    async def story():
        store = MemoryStore()
        states = SnapshotStore(store)
        at_the_first_write(store, "subtask-0", lambda: write_first_table(GroupStore(store), LeaseTable()))
        with pytest.raises(StateError, match="STATIC does not continue from these"):
            await states.open_generation(0)
        return await store.list_names("subtask-"), await GroupStore(store).read_table()

    entries, table = run_virtual(story())
    assert (entries, table.document) == ([], LeaseTable())


def test_a_worker_that_has_opened_before_a_subtask_began_ends_when_it_finds_the_table():
    """Another worker has created the table meanwhile, and was refused; the table is not deleted yet."""

    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()  # it has looked for subtasks; it finds its table later
        await group.store.put_if_absent("subtask-0", b"{}")
        with pytest.raises(StateError, match="ELASTIC does not continue from these"):
            await process.running
        await asyncio.sleep(60)
        return await GroupStore(group.store).read_table()

    assert run_virtual(story()) is None


def test_a_group_whose_store_does_not_answer_the_second_look_keeps_its_table_and_positions():
    """Others may use the table already."""

    async def story():
        store = MemoryStore()
        list_names, looks = store.list_names, []

        async def unavailable_the_second_time(prefix, before=None):
            looks.append(prefix)
            if len(looks) == 2:
                raise StoreUnavailableError("no answer")
            return await list_names(prefix, before)

        store.list_names = unavailable_the_second_time
        with pytest.raises(StoreUnavailableError):
            await store_as_group(store, STATES)
        return sorted(name.split("/")[1] for name in store.values)

    assert run_virtual(story()) == ["leases", "positions", "workers"]
