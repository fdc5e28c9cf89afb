"""E12: what a sealed worker left is deleted when nothing of it can take effect any more."""

import pytest

from recordpublisher.fetcher.leases.group_store import PARTS_PREFIX, WORKERS, GroupStore, TableCache
from recordpublisher.fetcher.leases.group_upkeep import GroupUpkeep
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.position_store import PartPositionStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord

from fakes.leases.faulty_store import FaultyStore
from fakes.shard_entries import StoppedClock


class Group:
    """A table, and the upkeep by worker `name`; `gone` was sealed and has left a record and a part."""

    def __init__(self, store, name="a"):
        self.store = store
        self.group = GroupStore(store, 5.0)
        self.cache = TableCache(self.group, StoppedClock())
        positions = PartPositionStore(self.group, name, 2, None)
        self.upkeep = GroupUpkeep(name, self.group, self.cache, positions, None)
        self.members = {"a": WorkerRecord("a", 1), "b": WorkerRecord("b", 1)}

    async def clean(self):
        records = {**self.members, "gone": WorkerRecord("gone", 1, is_sealed=True)}
        await self.upkeep.clean(GroupView(self.cache.table, records))

    @property
    def is_clean(self):
        return not any("gone" in name for name in self.store.values)


@pytest.fixture
async def group():
    store = FaultyStore()
    made = Group(store)
    await made.group.write_table(LeaseTable(1, leases={"t/s": Lease("b", 1)}), None)
    await store.put_if_absent(f"{WORKERS}gone", WorkerRecord("gone", 1, is_sealed=True).to_bytes())
    await store.put_if_absent(f"{PARTS_PREFIX}gone/0", b"a part")
    await made.cache.read()
    return made


async def test_it_is_deleted_when_the_table_was_written_after_the_seal_was_seen(group):
    await group.clean()
    assert not group.is_clean
    await group.clean()  # nobody else writes the table: this one does
    assert group.cache.version == 2
    assert group.is_clean


async def test_a_take_that_was_under_way_cannot_land_any_more(group):
    """The sealed worker has read the table before it was sealed, and its write is late."""
    read = await group.group.read_table()
    await group.clean()
    late = read.document.with_changes("gone", taken={"t/s": 2})
    await group.group.write_table(late, read.version)
    for _ in range(3):
        await group.clean()
    assert not group.is_clean
    await group.cache.replace(group.cache.table.with_changes("a", taken={"t/s": 3}))
    await group.clean()
    await group.clean()
    assert group.is_clean


async def test_an_older_reading_of_the_table_does_not_count(group):
    """The cached table is older than the seal: a later one may still have been written before it."""
    other = Group(group.store)
    await other.cache.read()
    await other.cache.replace(other.cache.table.with_changes("b"))
    await group.clean()
    assert not group.is_clean
    assert group.cache.version == 2


async def test_only_one_worker_of_the_group_does_it(group):
    other = Group(group.store, "b")
    await other.cache.read()
    for _ in range(3):
        await other.clean()
    assert not other.is_clean
