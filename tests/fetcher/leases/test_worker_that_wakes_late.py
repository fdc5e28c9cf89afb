"""A worker that could not reach the store for so long that others read its shards to their ends has lost these shards."""

import asyncio

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
