"""E3, E8: what one worker observes of the others."""

import pytest

from recordpublisher.fetcher.leases.group_observer import GroupObserver
from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore, TableCache
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.worker_sealing import seal_silent

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
        view = await self.observer.read_group()
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
    assert await group.observer.read_group() is None
    group.store.during_list = lambda: None
    assert await group.observer.read_group() is not None


async def test_after_a_new_table_the_records_are_read_consistently_once(group):
    await group.beats()
    await group.remember()
    await group.store.beat(
        WorkerRecord("b", beat=2, table_version=1, watermark=5, is_active=True)
    )  # it counts what it will take
    await group.write_table(2)
    await group.cache.read()

    assert await group.beats() == {"b": 2}
    assert await group.beats() == {"b": 2}
    assert group.store.consistent == [True, False]


async def test_a_table_that_another_record_names_is_read_and_then_the_records_consistently(group):
    await group.beats()
    await group.write_table(2)
    await group.store.beat(WorkerRecord("c", beat=1, table_version=2))
    await group.remember()
    await group.store.beat(WorkerRecord("b", beat=2, table_version=1))

    assert await group.beats() == {"b": 2, "c": 1}
    assert group.store.consistent == [False, True]


async def test_a_record_is_never_replaced_by_an_older_one(group):
    await group.remember()
    first = dict(group.store.old)
    await group.store.beat(WorkerRecord("b", beat=2))
    assert await group.beats() == {"b": 2}
    assert await group.beats() == {"b": 2}
    await group.remember()
    await group.store.beat(WorkerRecord("b", beat=2, is_sealed=True))  # a seal does not change the heartbeat
    for old in (None, group.store.old, first):
        group.store.old = old
        assert (await group.observer.read_group()).records["b"].is_sealed


async def test_a_record_that_is_missing_is_looked_for_consistently(group):
    await group.remember()
    await group.store.beat(WorkerRecord("c", beat=1))
    assert await group.beats() == {"b": 1, "c": 1}
    assert await group.beats() == {"b": 1, "c": 1}  # the old read does not know it yet
    await group.store.delete(f"{WORKERS}c")
    assert await group.beats() == {"b": 1}
    group.store.consistent.clear()
    assert await group.beats() == {"b": 1}
    assert group.store.consistent == [False]


@pytest.mark.parametrize(("lease_ms", "seconds"), [(None, 20), (20_000, 20), (8_000, 20), (120_000, 120)])
async def test_a_worker_is_sealed_when_it_is_silent_for_the_longer_of_both_lease_durations(group, lease_ms, seconds):
    """While a rolling change of the setting is under way, a worker may still write to its sink by its own."""
    await group.store.beat(WorkerRecord("b", beat=2, lease_ms=lease_ms))
    for elapsed in range(0, seconds + 5, 5):
        group.clock.seconds = elapsed
        view = await seal_silent(group.observer, await group.observer.read_group())
        assert view.records["b"].is_sealed == (elapsed >= seconds), elapsed


async def test_a_worker_is_late_after_half_of_its_lease_until_its_next_heartbeat(group, caplog):
    told = "worker b has sent no heartbeat for 10 s: after 20 s it counts as ended, and other workers take its shards"
    seen = []
    for elapsed in range(0, 15, 5):
        group.clock.seconds = elapsed
        await group.observer.read_group()
        seen.append((set(group.observer.late), caplog.messages == [told]))
    assert seen == [(set(), False), (set(), False), ({"b"}, True)]

    await group.store.beat(WorkerRecord("b", beat=2))
    await group.observer.read_group()
    assert not group.observer.late


def observer_with(group, handler):
    return GroupObserver(group.documents, group.cache, group.clock, "a", LeaseSettings(), handler)


async def test_a_worker_that_joins_later_is_logged_with_its_host(group, caplog):
    caplog.set_level("INFO", "recordpublisher.group")
    observer = observer_with(group, "handle")
    await observer.read_group()
    await group.store.beat(WorkerRecord("c", beat=1, table_version=1, host="laptop", pid=7, handler="handle"))
    for _ in range(2):
        await observer.read_group()
    assert caplog.messages == ["worker c (host laptop, process 7) has joined this group"]


@pytest.mark.parametrize(
    ("own", "theirs", "is_told"), [("handle", "show", True), ("", "show", False), ("handle", "", False)]
)
async def test_another_handler_is_warned_of_by_both_sides(group, caplog, own, theirs, is_told):
    await group.store.beat(WorkerRecord("c", beat=1, table_version=1, host="laptop", pid=7, handler=theirs))
    observer = observer_with(group, own)  # the program that has joined last finds the other one at its first read
    for _ in range(2):
        await observer.read_group()
    words = "worker c (host laptop, process 7) of this group has the handler 'show', and this worker has 'handle'"
    assert [message.startswith(words) for message in caplog.messages] == [True] * is_told
