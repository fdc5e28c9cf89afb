"""A worker that is asked to leave, or sealed, from outside the group: on virtual time, beside real workers (E11)."""

import asyncio

import pytest

from recordpublisher.fetcher.leases.documents.group_store import WORKERS, GroupStore
from recordpublisher.plugins.groups.draining import drain, seal, wait_until_left
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses
from fakes.leases.lease_group import LeaseGroup


def joined(*names):
    group = LeaseGroup(shards=4)
    for name in names:
        group.join(name)
    return group, GroupStore(group.store, 5.0)


def test_a_worker_that_is_asked_to_leave_does_so_within_seconds_and_its_shards_go_to_others():
    async def story():
        group, documents = joined("a", "b")
        await asyncio.sleep(30)  # nobody reads the table for its age, which is a minute, in the next seconds
        await drain(documents, "b")
        await drain(documents, "b")  # again: nothing to do
        assert await wait_until_left(documents, "b", seconds=10)
        await group.tasks["b"]
        await asyncio.sleep(60)
        owned, left = group.owned(), [name for name in group.store.values if name.startswith(WORKERS)]
        table = group.table
        await group.close()
        return owned, left, table, group.unread.gaps

    owned, left, table, gaps = run_virtual(story())
    assert {name: len(shards) for name, shards in owned.items()} == {"a": 4}
    assert left == [f"{WORKERS}a"]  # that of the command is deleted, too
    assert not table.drained
    assert max(gaps) < 6


def test_a_process_that_is_asked_to_leave_ends_without_a_repeat():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        group.send()
        worker = first.worker.name
        await drain(GroupStore(group.store, 5.0), worker)
        group.send()
        await first.running
        await first.fetcher.close()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_a_worker_that_is_sealed_is_fenced():
    async def story():
        group, documents = joined("a", "b")
        await asyncio.sleep(60)
        await seal(documents, "b")
        await asyncio.wait([group.tasks["b"]])
        error = group.tasks["b"].exception()
        await asyncio.sleep(10)
        owned = group.owned()
        await group.close()
        return error, owned

    error, owned = run_virtual(story())
    assert isinstance(error, FencedError)
    assert {name: len(shards) for name, shards in owned.items()} == {"a": 4}


@pytest.mark.parametrize("request_of", [drain, seal])
def test_a_worker_that_is_not_there_is_an_error_that_names_those_that_are(request_of):
    async def story():
        group, documents = joined("a", "b")
        await asyncio.sleep(30)
        try:
            with pytest.raises(StateError, match="worker c is not in the group; valid: a, b"):
                await request_of(documents, "c")
        finally:
            await group.close()

    run_virtual(story())


def test_waiting_for_a_worker_ends_after_the_given_time():
    async def story():
        group, documents = joined("a")
        await asyncio.sleep(30)
        has_left = await wait_until_left(documents, "a", seconds=5)
        await group.close()
        return has_left

    assert run_virtual(story()) is False
