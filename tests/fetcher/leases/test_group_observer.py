"""E3, E8: what one worker observes of the others."""

import pytest

from recordpublisher.fetcher.leases.documents.group_store import WORKERS, GroupStore
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.table_cache import TableCache
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.group_observer import GroupObserver
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings

from fakes.memory_store import MemoryStore
from fakes.shard_entries import StoppedClock


class MachineClock(StoppedClock):
    """`slept`: how long the machine has slept (s); only one of its clocks counts that."""

    slept = 0.0

    def boottime(self):
        return self.seconds + self.slept


class OldReadsStore(MemoryStore):
    """Reads that need not be consistent return `old` while it is set. `during_list` is called in each of them."""

    def __init__(self):
        super().__init__()
        self.old = None
        self.consistent = []
        self.during_list = lambda: None

    async def list(self, prefix, *, consistent=True):
        self.during_list()
        self.consistent.append(consistent)
        found = await super().list(prefix)
        return found if consistent or self.old is None else self.old

    async def beat(self, record):
        name = f"{WORKERS}{record.worker}"
        current = self.values.get(name)
        return self._write(name, record.to_bytes(), None if current is None else current.version)


class Group:
    def __init__(self):
        self.store, self.clock = OldReadsStore(), MachineClock()
        self.documents = GroupStore(self.store, 5.0)
        self.cache = TableCache(self.documents, self.clock)
        self.observer = GroupObserver(self.documents, self.cache, self.clock, "a", LeaseSettings())

    async def write_table(self, version):
        current = self.store.values.get("group/leases")
        await self.documents.write_table(LeaseTable(version), None if current is None else current.version)

    async def remember(self):
        """From now on inconsistent reads return what is stored now."""
        self.store.old = dict(await self.store.list(WORKERS))
        self.store.consistent.clear()

    async def beats(self):
        view = await self.observer.look()
        return {name: record.beat for name, record in view.records.items()}


@pytest.fixture
async def group():
    made = Group()
    await made.write_table(1)
    await made.store.beat(WorkerRecord("b", beat=1, table_version=1))
    return made


async def test_a_reading_during_which_the_machine_slept_is_not_used(group):
    def sleep():
        group.clock.slept += 600

    group.store.during_list = sleep
    assert await group.observer.look() is None
    group.store.during_list = lambda: None
    assert await group.observer.look() is not None
