"""Workers of one group on virtual time: they share the shards, and take over from those that leave or die."""

import asyncio
from contextlib import asynccontextmanager
from statistics import median

from recordpublisher.fetcher.leases.group_counters import GroupCounters
from recordpublisher.fetcher.leases.group_store import WORKERS
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.lease_group import LeaseGroup


@asynccontextmanager
async def group_of(*names, shards=4, settings=None):
    """Workers that have joined one after the other, with their shards in balance."""
    group = LeaseGroup(shards, settings)
    try:
        for name in names:
            group.join(name)
            await asyncio.sleep(30)
        yield group
    finally:
        await group.close()


def reads(group, name):
    """The shards that the worker reads."""
    readers = group.readers[name]
    return sorted(readers.positions.keys() - readers.stopped)


def virtual(test):
    """Run a test on virtual time."""

    def run():
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtual
async def test_the_first_worker_creates_the_table_and_takes_every_shard():
    async with group_of("a") as group:
        assert group.owned() == {"a": ["t/0", "t/1", "t/2", "t/3"]}
        assert reads(group, "a") == ["t/0", "t/1", "t/2", "t/3"]
        assert group.workers["a"].permission.is_given


def test_what_a_worker_takes_and_gives_up_is_logged(caplog):
    async def story():
        async with group_of("a", "b"):
            pass

    with caplog.at_level("INFO", "recordpublisher.group"):
        run_virtual(story())
    lines = [line for line in caplog.messages if "shards: " in line]
    assert lines[0] == "worker a takes 4 shards: t/0, t/1, t/2, t/3"
    assert [line.partition(" shards: t/")[0] for line in lines[1:]] == ["worker b takes 2", "worker a has given up 2"]


def test_a_store_that_answers_again_is_logged(caplog, monkeypatch):
    async def story():
        async with group_of("a") as group:
            write = group.store.compare_and_set

            async def fail(*arguments):
                raise StoreUnavailableError("no answer")

            monkeypatch.setattr(group.store, "compare_and_set", fail)
            await asyncio.sleep(7)
            assert "a heartbeat of worker a was not stored; it is tried again: no answer" in caplog.text
            assert "answers worker a again" not in caplog.text
            monkeypatch.setattr(group.store, "compare_and_set", write)
            await asyncio.sleep(60)

    with caplog.at_level("INFO", "recordpublisher.group"):
        run_virtual(story())
    assert caplog.messages.count("the group's store answers worker a again") == 1


def test_no_line_says_that_the_store_answers_again_without_a_line_that_it_did_not(caplog, monkeypatch):
    async def story():
        async with group_of("a") as group:
            write, calls = group.store.compare_and_set, iter(range(10**6))

            async def sometimes(*arguments):
                if next(calls) % 2:
                    raise StoreUnavailableError("no answer")
                return await write(*arguments)

            monkeypatch.setattr(group.store, "compare_and_set", sometimes)
            await asyncio.sleep(50)

    with caplog.at_level("INFO", "recordpublisher.group"):
        run_virtual(story())
    assert caplog.text.count("a heartbeat of worker a was not stored") == 1
    assert caplog.messages.count("the group's store answers worker a again") == 1


def test_an_outage_of_the_store_is_logged_once_a_minute(caplog, monkeypatch):
    async def story():
        async with group_of("a") as group:

            async def fail(*arguments, **options):
                raise StoreUnavailableError("no answer")

            monkeypatch.setattr(group.store, "compare_and_set", fail)
            monkeypatch.setattr(group.store, "list", fail)
            await asyncio.sleep(7)
            caplog.clear()
            await asyncio.sleep(120)
            group.tasks["a"].cancel()

    with caplog.at_level("WARNING", "recordpublisher.group"):
        run_virtual(story())
    assert 2 <= len(caplog.messages) <= 6, caplog.messages
    assert all(" others since the last such line): no answer" in line for line in caplog.messages)


def test_a_worker_that_leaves_during_an_outage_of_its_sink_is_not_said_to_wait_for_its_group_alone(caplog):
    async def story():
        async with group_of("a") as group:

            @asynccontextmanager
            async def checkpoint(*, may_be_partial=False):
                raise StoreUnavailableError("the bucket does not answer")
                yield

            flush, group.readers["a"].checkpoint = group.readers["a"].checkpoint, checkpoint
            group.workers["a"].leave()
            await asyncio.sleep(7)
            group.readers["a"].checkpoint = flush
            await group.tasks["a"]

    with caplog.at_level("WARNING", "recordpublisher.group"):
        run_virtual(story())
    assert set(caplog.messages) == {
        "worker a waits for the state store or the sink, and tries again: the bucket does not answer"
    }


def test_a_line_about_many_shards_names_some(caplog):
    async def story():
        async with group_of("a", shards=30):
            pass

    with caplog.at_level("INFO", "recordpublisher.group"):
        run_virtual(story())
    assert "worker a takes 30 shards: t/0, t/1, t/10, t/11, t/12 and 25 more" in caplog.messages


@virtual
async def test_a_worker_commits_nothing_before_it_has_joined():
    """Its sink may hear of the same worker once more, when the store of the group did not answer."""
    async with group_of() as group:
        committed = []

        async def commit(*positions):
            committed.append(positions)

        group.join("a")._commits._positions.commit = commit
        await group.workers["a"].checkpoint(may_be_partial=True)
        assert committed == []


@virtual
async def test_a_worker_that_joins_gets_its_share_with_the_positions():
    async with group_of("a") as group:
        group.readers["a"].positions = dict.fromkeys(group.readers["a"].positions, 7)
        group.join("b")
        await asyncio.sleep(30)
        assert len(reads(group, "a")) == len(reads(group, "b")) == 2
        assert set(group.readers["b"].positions.values()) == {7}


@virtual
async def test_a_shard_that_another_worker_has_taken_holds_the_watermark_of_the_one_before_a_while_longer():  # E8
    async with group_of("a") as group:
        group.readers["a"].positions = dict.fromkeys(group.readers["a"].positions, 7)
        group.join("b")
        for _ in range(600):
            if len(group.readers["a"].positions) < 4:
                break
            await asyncio.sleep(0.1)
        stated = []
        for _ in range(4):
            group.readers["a"].positions = dict.fromkeys(group.readers["a"].positions, 50)
            await asyncio.sleep(group.settings.interval)
            stated.append(WorkerRecord.from_bytes(group.store.values[f"{WORKERS}a"].value, "a").watermark)
        assert (stated[0], stated[-1]) == (7, 50)


@virtual
async def test_shards_move_only_when_the_members_were_the_same_for_two_intervals():  # E6
    async with group_of("a") as group:
        group.join("b")
        await asyncio.sleep(2 * group.settings.interval)
        assert len(reads(group, "a")) == 4


@virtual
async def test_the_shards_of_a_worker_that_leaves_have_a_new_owner_within_two_seconds():
    async with group_of("a", "b") as group:
        group.readers["b"].positions = dict.fromkeys(group.readers["b"].positions, 9)
        leaving = group.readers["b"]
        group.workers["b"].leave()
        await group.tasks["b"]
        await asyncio.sleep(group.settings.interval)
        assert len(reads(group, "a")) == 4
        assert {group.readers["a"].positions[shard] for shard in leaving.stopped} == {9}


@virtual
async def test_the_shards_of_a_worker_that_has_announced_its_end_have_a_new_owner_within_a_second():
    async with group_of("a", "b") as group:
        assert await group.workers["b"].announce()
        await asyncio.sleep(group.settings.announce_seconds)
        assert len(reads(group, "b")) == 2
        group.workers["b"].leave()
        await group.tasks["b"]
        await asyncio.sleep(1)
        assert len(reads(group, "a")) == 4
        assert max(group.unread.gaps) < 1


@virtual
async def test_a_worker_without_others_announces_nothing():
    async with group_of("a") as group:
        assert not await group.workers["a"].announce()
        assert len(reads(group, "a")) == 4


@virtual
async def test_a_worker_may_have_others_until_it_has_looked():
    """What they share with the service is theirs, too: a worker that ends at once must not release it."""
    async with group_of("a") as group:
        assert not group.workers["a"].has_others
        assert group.join("b").has_others
        await asyncio.sleep(group.settings.interval)
        assert group.workers["a"].has_others


@virtual
async def test_the_shards_of_a_worker_that_died_have_a_new_owner_after_the_lease_duration():
    async with group_of("a", "b") as group:
        await group.workers["b"].checkpoint()
        await group.kill("b")
        await asyncio.sleep(group.settings.duration - group.settings.interval - 1)  # its last heartbeat may be that old
        assert len(reads(group, "a")) == 2
        await asyncio.sleep(3 * group.settings.interval + 2)
        assert len(reads(group, "a")) == 4


def test_the_shards_of_a_worker_whose_record_was_deleted_have_a_new_owner_after_a_lease_duration(caplog):
    """For example by a rule of the bucket that deletes old objects."""

    async def story():
        group = LeaseGroup(4)
        try:
            for name in "ab":
                group.join(name)
                await asyncio.sleep(30)
            readers = group.readers["a"]
            readers.positions = dict.fromkeys(readers.positions, 7)
            await group.workers["a"].checkpoint()
            await group.kill("a")
            del group.store.values[f"{WORKERS}a"]
            await asyncio.sleep(group.settings.duration - 1)
            before = len(group.readers["b"].positions)
            await asyncio.sleep(3 * group.settings.interval)
            return before, sorted(group.readers["b"].positions.values())
        finally:
            await group.close()

    assert run_virtual(story()) == (2, [0, 0, 7, 7])
    assert [line for line in caplog.messages if "record" in line] == [
        "the record of worker a, which owns shards, was deleted: it counts as ended, and other workers take its shards"
    ]


@virtual
async def test_in_a_rolling_restart_no_shard_is_without_a_reader_for_six_seconds():
    async with group_of(*"abcd", shards=16) as group:
        group.unread.gaps.clear()
        for name in "abcd":
            group.workers[name].leave()
            await group.tasks[name]
            group.join(f"{name}2")
            await asyncio.sleep(30)
        assert median(group.unread.gaps) < 2
        assert max(group.unread.gaps) < 6
        assert sorted(map(len, group.owned().values())) == [4, 4, 4, 4]


@virtual
async def test_a_worker_that_was_sealed_is_fenced():
    async with group_of("a", "b") as group:
        seen = (await group.workers["a"]._observer._group.read_records())["b"]
        await group.workers["a"]._observer._group.seal_record(seen)
        await asyncio.wait([group.tasks["b"]])
        assert type(group.tasks["b"].exception()).__name__ == "FencedError"
        await asyncio.sleep(2 * group.settings.interval)
        assert len(reads(group, "a")) == 4


@virtual
async def test_the_children_of_a_shard_are_read_when_its_end_is_stored():  # E7
    async with group_of("a", shards=1) as group:
        group.readers["a"].children["t/0"] = {"t/1": ("t/0",), "t/2": ("t/0",)}
        group.readers["a"].positions["t/0"] = 5
        await group.workers["a"].checkpoint()
        await asyncio.sleep(2)
        assert reads(group, "a") == ["t/1", "t/2"]
        assert set(group.table.leases) == {"t/1", "t/2"}


@virtual
async def test_a_group_at_rest_makes_few_requests():  # E2
    async with group_of(*"abcd", shards=40) as group:
        group.store.requests = dict.fromkeys(group.store.requests, 0)
        await asyncio.sleep(120)
        requests = {kind: count / 120 / 4 for kind, count in group.store.requests.items()}
        assert requests["write"] <= 1 / 4  # each worker a heartbeat in 4 to 5 s
        assert requests["list"] <= 1 / 2.5  # each worker a look in 2.5 to 5 s
        assert requests["get"] <= 1 / 30  # each worker the table once a minute


@virtual
async def test_another_lease_duration_changes_all_times():
    async with group_of("a", "b", settings=LeaseSettings(duration=4.0)) as group:
        await group.kill("b")
        await asyncio.sleep(8)
        assert len(reads(group, "a")) == 4


@virtual
async def test_what_a_process_does_in_its_group_is_counted():
    async with group_of("a", "b") as group:
        await group.workers["b"].checkpoint()
        await group.kill("b")
        await asyncio.sleep(group.settings.duration + 2 * group.settings.interval + 2)
        counts = group.workers["a"]._counts
        assert (counts.sealed, counts.taken, counts.given) == (1, 6, 2)  # 4, of which b took 2, which came back
        assert counts.unowned == 0


@virtual
async def test_shards_of_a_killed_worker_count_as_unowned_before_its_lease_ends():
    async with group_of("a", "b") as group:
        await group.kill("b")
        await asyncio.sleep(group.settings.duration * 0.8)
        assert group.workers["a"]._counts.unowned == 2


@virtual
async def test_a_worker_waits_for_leases_only_of_workers_that_were_never_seen_alive():
    async with group_of("a") as group:
        await group.kill("a")
        group.join("c")
        await asyncio.sleep(group.settings.duration / 2)
        assert (reads(group, "c"), group.workers["c"].waits_for) == ([], ["a"])
        await asyncio.sleep(group.settings.duration)
        assert (len(reads(group, "c")), group.workers["c"].waits_for) == (4, [])


@virtual
async def test_a_worker_beside_more_workers_than_shards_waits_for_nothing():
    async with group_of("a", shards=1) as group:
        group.join("b")
        await asyncio.sleep(2 * group.settings.interval)
        assert (reads(group, "b"), group.workers["b"].waits_for) == ([], [])


def test_shards_that_nobody_reads_are_counted_with_the_longest_time():
    counts = GroupCounters()
    counts.set_unowned([3.0, 7.5])
    assert (counts.unowned, counts.unowned_seconds) == (2, 7.5)
    counts.set_unowned([])
    assert (counts.unowned, counts.unowned_seconds) == (0, 0.0)
