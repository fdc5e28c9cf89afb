"""A worker that could not reach the store for long was sealed: it takes nothing for deleted, and replaces nobody."""

import asyncio

from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.worker_sealing import seal_worker
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.lease_group import LeaseGroup


class Gate:
    """A store of which reads or writes get no answer."""

    def __init__(self, store):
        self._store = store
        self.reads = self.writes = True

    @property
    def place(self):
        return self._store.place

    async def get(self, name):
        return await self._through(self.reads, self._store.get, name)

    async def list(self, prefix, *, consistent=True):
        return await self._through(self.reads, self._store.list, prefix)

    async def put_if_absent(self, name, value):
        return await self._through(self.writes, self._store.put_if_absent, name, value)

    async def compare_and_set(self, name, value, expected):
        return await self._through(self.writes, self._store.compare_and_set, name, value, expected)

    async def _through(self, is_open, call, *given):
        if not is_open:
            await asyncio.sleep(0.1)
            raise StoreUnavailableError("no answer")
        return await call(*given)


async def read_to_their_ends(group, name):
    """The worker reads its first shards to their ends, and takes their children."""
    readers = group.readers[name]
    readers.children = {f"t/{number}": {f"t/child-{number}": (f"t/{number}",)} for number in range(2)}
    await group.workers[name].checkpoint()
    await asyncio.sleep(30)
    assert set(group.table.leases) == {"t/child-0", "t/child-1"}


def test_it_has_lost_the_shards_whose_leases_are_gone_because_others_have_read_them():
    async def story():
        group = LeaseGroup(2)
        try:
            group.join("a")
            await asyncio.sleep(30)
            await group.workers["a"].checkpoint()
            gate = group.workers["a"]._group._store = Gate(group.store)
            dropped = {}
            group.readers["a"].drop = dropped.update
            gate.reads = gate.writes = False
            group.join("b")
            await asyncio.sleep(60)
            await read_to_their_ends(group, "b")
            gate.reads = True
            await asyncio.sleep(10)
            before, gate.writes = dict(dropped), True
            await asyncio.wait([group.tasks["a"]], timeout=60)
            return before, type(group.tasks["a"].exception()).__name__
        finally:
            await group.close()

    dropped, error = run_virtual(story())
    assert RevocationReason.DELETED not in dropped.values()
    assert error == "FencedError"


class SlowHeartbeats(Gate):
    """Heartbeats take long, as after the sleep of a machine, in which their timer stood."""

    async def compare_and_set(self, name, value, expected):
        if name.startswith(WORKERS) and b'"sealed"' not in value:
            await asyncio.sleep(3)
        return await super().compare_and_set(name, value, expected)


def test_it_does_not_replace_a_worker_that_was_started_alone_meanwhile():  # E10
    async def story():
        group = LeaseGroup(1)
        try:
            group.join("a")
            await asyncio.sleep(30)
            group.join("standby")
            await asyncio.sleep(30)
            gate = group.workers["standby"]._group._store = SlowHeartbeats(group.store)
            gate.reads = gate.writes = False
            group.workers["a"].leave()
            await group.tasks["a"]
            documents = GroupStore(group.store)
            await seal_worker(documents, "standby")
            found = await documents.read_table()
            alone = WorkerRecord("alone", 1, is_alone=True, table_version=found.document.version + 1)
            await documents.own_record("alone").write(alone)
            await documents.write_table(found.document.with_alone_owner("alone", GroupJob("sink")), found.version)
            gate.reads = gate.writes = True
            await asyncio.wait([group.tasks["standby"]], timeout=60)
            return (await documents.read_record("alone")).document, type(group.tasks["standby"].exception()).__name__
        finally:
            await group.close()

    alone, error = run_virtual(story())
    assert not alone.is_sealed
    assert error == "FencedError"
