"""A worker that is asked to leave, or sealed, from outside the group: on virtual time, beside real workers (E11)."""

import asyncio
from types import SimpleNamespace

import pytest

from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.plugins.group_control import drain, seal, wait_until_left
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
        assert await wait_until_left(documents, "b", seconds=10) is None
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
            with pytest.raises(StateError, match=r"worker c is not in the group, whose workers are: a, b"):
                await request_of(documents, "c")
        finally:
            await group.close()

    run_virtual(story())


def test_what_a_worker_that_does_not_leave_waits_for_is_told():
    async def story():
        group, documents = joined("a")
        await asyncio.sleep(30)
        running = await wait_until_left(documents, "a", seconds=20)
        group.tasks["a"].cancel()  # as if its process were stopped: no heartbeat follows
        await asyncio.sleep(1)
        suspended = await wait_until_left(documents, "a", seconds=20)
        await group.close()
        return running, suspended

    running, suspended = run_virtual(story())
    assert "it sends heartbeats: it stores its last checkpoint" in running
    assert "it has sent no heartbeat for 20 s: its process is suspended" in suspended


def test_a_store_that_does_not_answer_the_command_says_nothing_of_the_worker():
    class HungGroup:
        looks = 0

        async def read_records(self):
            self.looks += 1
            if self.looks > 10:
                await asyncio.Event().wait()
            return {"w": SimpleNamespace(document=WorkerRecord("w", self.looks, lease_ms=30_000))}

    told = run_virtual(wait_until_left(HungGroup(), "w", 60))
    assert told.startswith("the group's store has not answered this command for 5")


def test_a_worker_that_others_have_sealed_has_not_left():
    async def story():
        group, documents = joined("a", "b")
        await asyncio.sleep(30)
        group.tasks["b"].cancel()  # as if its process were stopped
        await asyncio.sleep(1)
        waits_for = await wait_until_left(documents, "b", seconds=60)
        await group.close()
        return waits_for

    assert "joins again as a new worker: end it" in run_virtual(story())
