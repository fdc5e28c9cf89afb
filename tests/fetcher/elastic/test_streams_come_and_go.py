"""S10, E12, S2, S5: in a group, streams come into the list and leave it with their positions kept, and shards end and expire."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.testing import VirtualClock, run_virtual
from recordpublisher.testing.virtual_time import EPOCH_MS

from fakes.leases.elastic_processes import ElasticProcesses

LOOK = 5.0


class Listed:
    """One list for all processes, as the test changes it."""

    def __init__(self, *names):
        self.names = names

    def of_process(self):
        return StreamList(self.names, self.look, LOOK)

    async def look(self):
        return self.names


def keys(*processes):
    return sorted(key for process in processes for key in process.fetcher.metrics()["shards"])


def played(story, *names, shards=4):
    """Run `story(group, listed)` of a group over the streams s and t, half of the shards each; returns the group."""

    async def run():
        group, listed = ElasticProcesses(shards, streams=("s", "t")), Listed(*names)
        await story(group, listed)
        return group

    return run_virtual(run())


def test_a_new_stream_is_shared_and_read_from_its_start():
    async def story(group, listed):
        first, second = await group.join(listed.of_process()), await group.join(listed.of_process())
        group.send()
        await asyncio.sleep(60)
        assert keys(first, second) == ["s/shard-0", "s/shard-2"]
        listed.names = ("s", "t")
        await group.wait_until_all_is_written()
        await group.wait_until(lambda: len(first.fetcher.metrics()["shards"]) == 2)
        await first.stop()
        await second.stop()

    group = played(story, "s")
    assert sorted(group.rows) == sorted(group.sent)


def test_a_new_stream_does_not_wait_for_the_next_periodic_listing():
    async def story(group, listed):
        process = await group.join(listed.of_process(), **{"flink.shard.discovery.intervalmillis": 3_600_000})
        group.send()
        await asyncio.sleep(60)
        listed.names = ("s", "t")
        await asyncio.sleep(60)
        await process.stop()

    group = played(story, "s")
    assert sorted(group.rows) == sorted(group.sent)


def test_a_stream_that_left_is_not_read_and_goes_on_where_it_stopped_when_it_is_back():
    async def story(group, listed):
        process = await group.join(listed.of_process())
        group.send()
        await group.wait_until_all_is_written()
        listed.names = ("s",)
        await group.wait_until(lambda: keys(process) == ["s/shard-0", "s/shard-2"])
        before = len(group.rows)
        group.send()
        await asyncio.sleep(60)
        assert len(group.rows) == before + 10
        listed.names = ("s", "t")
        await group.wait_until_all_is_written()
        await process.stop()

    group = played(story, "s", "t")
    assert sorted(group.rows) == sorted(group.sent)


def test_the_position_of_a_stream_that_left_survives_its_process():
    async def story(group, listed):
        first = await group.join(listed.of_process())
        group.send()
        await group.wait_until_all_is_written()
        listed.names = ("s",)
        await group.wait_until(lambda: keys(first) == ["s/shard-0", "s/shard-2"])
        await asyncio.sleep(30)
        await first.stop()
        second = await group.join(listed.of_process())
        await group.wait_until(lambda: keys(second) == ["s/shard-0", "s/shard-2"])
        group.send()
        await asyncio.sleep(60)
        await second.kill()
        listed.names = ("s", "t")
        third = await group.join(listed.of_process())
        await group.wait_until_all_is_written()
        await third.stop()

    group = played(story, "s", "t")
    assert sorted(row for row in group.rows if row[0] in ("shard-1", "shard-3")) == sorted(
        row for row in group.sent if row[0] in ("shard-1", "shard-3")
    )


def test_a_process_whose_list_lacks_the_stream_of_a_lease_keeps_the_lease_and_reads_nothing():
    async def story(group, listed):
        own = Listed("s")
        process = await group.join(own.of_process())
        leader = await group.join(listed.of_process())
        group.send()
        await asyncio.sleep(120)
        own.names = ("s", "t")
        await group.wait_until_all_is_written()
        await leader.stop()
        await process.stop()

    group = played(story, "s", "t")
    assert sorted(group.rows) == sorted(group.sent)


def test_a_stream_that_left_holds_no_watermark_of_the_group():
    async def story(group, listed):
        first = await group.join(listed.of_process(), **{"flink.shard.idle.interval": -1})
        second = await group.join(listed.of_process(), **{"flink.shard.idle.interval": -1})
        await group.wait_until(lambda: len(keys(first)) == len(keys(second)) == 2)
        for key, scripted in group.source.shards.items():
            scripted.put(100 if key.startswith("t") else 9_000)
        await asyncio.sleep(60)
        assert {process.sink.watermarks[-1] for process in (first, second)} == {100}
        listed.names = ("s",)
        await asyncio.sleep(60)
        reading = [process for process in (first, second) if keys(process)]
        assert {process.sink.watermarks[-1] for process in reading} == {9_000}
        await first.stop()
        await second.stop()

    played(story, "s", "t")


def test_a_stream_that_left_does_not_hide_new_shards_of_others():
    async def story(group, listed):
        process = await group.join(listed.of_process())
        await group.wait_until(lambda: len(keys(process)) == 4)
        listed.names = ("s",)
        await group.wait_until(lambda: len(keys(process)) == 2)
        group.source.add("shard-4", 1, stream="s")
        await group.wait_until(lambda: ("shard-4", 1) in group.rows)
        await process.stop()

    played(story, "s", "t")


CONTINUE = {"flink.state.dataloss": "CONTINUE"}


async def group_whose_parent_has_expired(*, is_child_in_the_table):
    """A group read some of a shard, and was down while the shard was split and expired."""
    group = ElasticProcesses(shards=1, cost=5)
    process = await group.join()
    group.send(100)
    await group.wait_until(lambda: bool(group.rows))
    if is_child_in_the_table:
        group.source.split("shard-0", "left", "right")
        await asyncio.sleep(15)
    await process.stop()
    if not is_child_in_the_table:
        group.source.split("shard-0", "left", "right")
    del group.source.shards["s/shard-0"]
    for child in ("left", "right"):
        group.source.shards[f"s/{child}"].put(1_000, 1_001)
    return group


@pytest.mark.parametrize("is_child_in_the_table", [True, False])
def test_what_was_lost_with_an_expired_shard_ends_the_job(is_child_in_the_table):
    async def story():
        group = await group_whose_parent_has_expired(is_child_in_the_table=is_child_in_the_table)
        process = await group.join(**{"flink.shard.discovery.intervalmillis": 1_000})
        async with asyncio.timeout(300):
            await process.running

    with pytest.raises(DataLossError, match=r"s/shard-0 after \d+"):
        run_virtual(story())


@pytest.mark.parametrize("is_child_in_the_table", [True, False])
def test_a_group_that_accepts_the_loss_reads_the_children_of_an_expired_shard(is_child_in_the_table, caplog):
    async def story():
        group = await group_whose_parent_has_expired(is_child_in_the_table=is_child_in_the_table)
        process = await group.join(**CONTINUE, **{"flink.shard.discovery.intervalmillis": 1_000})
        await group.wait_until(lambda: {("left", 1_001), ("right", 1_001)} <= set(group.rows))
        await asyncio.sleep(60)
        shards = process.shards
        await process.stop()
        return shards

    assert run_virtual(story()) == {"left", "right"}, "the lease of the parent has gone"
    assert [record for record in caplog.records if "s/shard-0" in record.message and "lost" in record.message]


def test_a_shard_that_only_listings_lack_is_waited_for():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: len(process.shards) == 1)
        await process.stop()
        group.source.unlisted.add("s/shard-0")
        group.send(5)
        process = await group.join()
        await asyncio.sleep(60)
        group.source.unlisted.clear()
        await group.wait_until_all_is_written()
        await process.stop()

    run_virtual(story())


def test_children_of_a_shard_whose_end_names_none_are_read_when_they_are_listed():
    """As those of DynamoDB Streams, and of a plugin that lists its shards (S3)."""

    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join(**{"flink.shard.discovery.intervalmillis": 1_000})
        group.send(5)
        await group.wait_until_all_is_written()
        group.source.close_shard("shard-0")
        await group.wait_until(lambda: not process.shards)
        group.source.add("child", 50, parents=("shard-0",))
        group.sent.add(("child", 50))
        await group.wait_until_all_is_written()
        assert process.shards == {"child"}
        await process.stop()

    run_virtual(story())


def test_a_deleted_stream_of_a_fixed_list_does_not_end_the_group():  # S8
    async def run():
        group = ElasticProcesses(4, streams=("s", "t"))
        first, second = await group.join(("s", "t")), await group.join(("s", "t"))
        group.send()
        await group.wait_until_all_is_written()
        group.source.deleted.add("t")
        await asyncio.sleep(120)  # readers and listings find out, on both sides
        await second.kill()  # its shards move: one of the deleted stream is no gap
        before = len(group.rows)
        group.source.shards["s/shard-0"].put(EPOCH_MS + 1_000)
        group.source.shards["s/shard-2"].put(EPOCH_MS + 1_000)
        await group.wait_until(lambda: len(group.rows) == before + 2)
        assert not first.running.done()
        await first.stop()
        return group.rows[before:]

    assert sorted(run_virtual(run())) == [("shard-0", EPOCH_MS + 1_000), ("shard-2", EPOCH_MS + 1_000)]


def test_what_was_read_of_a_deleted_stream_is_written_and_committed_before_its_leases_are_gone():  # S8
    """No later reader can read these records again. `MapSink` drops records of a lease that is gone."""

    async def run():
        group, handled = ElasticProcesses(2, streams=("s", "t")), []

        async def handle(record):
            await asyncio.sleep(0.2)
            handled.append((record.shard_id, int(record.data)))

        sink = rp.MapSink(handle, ordering="PER_SHARD", clock=VirtualClock())
        process = await group.join(("s", "t"), sink=sink)
        await group.wait_until(lambda: len(keys(process)) == 2)
        group.send(30)
        await group.wait_until(lambda: process.fetcher.sink_unfinished().records > 50)
        group.source.deleted.add("t")
        await asyncio.sleep(60)
        assert keys(process) == ["s/shard-0"]
        await process.stop()
        return group.sent - set(handled)

    assert run_virtual(run()) == set()


def notice_deletions_late(source, late):
    """Let the readers of the shards `late` notice a deletion ten minutes later, as if they waited for the answer to a call."""
    create = source.create

    async def create_late(shard, position, metrics):
        publisher = await create(shard, position, metrics)
        read = publisher.run

        async def run(consumer):
            try:
                return await read(consumer)
            except rp.StreamNotFoundError:
                await asyncio.sleep(600 if shard.key in late else 0)
                raise

        publisher.run = run
        return publisher

    source.create = create_late


def test_what_was_read_of_a_deleted_stream_is_written_by_a_worker_that_another_one_tells_of_the_deletion():  # S8
    async def run():
        group, handled, late = ElasticProcesses(4, streams=("s", "t")), [], set()
        notice_deletions_late(group.source, late)

        async def handle(record):
            await asyncio.sleep(0.5 if f"t/{record.shard_id}" in late else 0.1)
            handled.append((record.shard_id, int(record.data)))

        sinks = [rp.MapSink(handle, ordering="PER_SHARD", clock=VirtualClock()) for _ in range(2)]
        processes = [await group.join(("s", "t"), sink=sink) for sink in sinks]
        await group.wait_until(lambda: all(len(keys(each)) == 2 for each in processes))
        late |= {key for key in keys(processes[1]) if key.startswith("t/")}
        group.send(30)
        await group.wait_until(lambda: all(each.fetcher.sink_unfinished().records > 50 for each in processes))
        group.source.deleted.add("t")
        await asyncio.sleep(60)
        left = [keys(each) for each in processes]
        for each in processes:
            await each.stop()
        return len(late), left, group.sent - set(handled)

    late, left, missing = run_virtual(run())
    assert (late, missing) == (1, set())
    assert sorted(left) == [["s/shard-0"], ["s/shard-2"]]


def test_a_record_of_a_deleted_stream_that_alignment_holds_back_is_written_when_the_others_come_up_to_it():  # S8, E8
    """The worker learns the watermark of the group also while it waits for that record."""

    async def run():
        group, late = ElasticProcesses(4, streams=("s", "t")), set()
        notice_deletions_late(group.source, late)
        aligned = {"flink.watermark.lookahead.millis": 10_000}
        processes = [await group.join(("s", "t"), **aligned) for _ in range(2)]
        await group.wait_until(lambda: all(len(keys(each)) == 2 for each in processes))
        late |= {key for key in keys(processes[1]) if key.startswith("t/")}
        (held,) = late
        for scripted in group.source.shards.values():
            scripted.put(EPOCH_MS)
        await group.wait_until(lambda: len(group.rows) == 4)
        group.source.shards[held].put(EPOCH_MS + 60_000)
        await asyncio.sleep(10)
        group.source.deleted.add("t")
        await asyncio.sleep(8)
        before = len(group.rows)
        for key in ("s/shard-0", "s/shard-2"):
            group.source.shards[key].put(EPOCH_MS + 70_000)
        await asyncio.sleep(60)
        for each in processes:
            await each.stop()
        return before, (held.removeprefix("t/"), EPOCH_MS + 60_000) in group.rows

    assert run_virtual(run()) == (4, True)


def test_records_of_a_deleted_stream_that_are_given_up_are_logged(caplog):  # S8
    async def run():
        group = ElasticProcesses(2, streams=("s", "t"))

        async def handle(record):
            await asyncio.sleep(5)

        sink = rp.MapSink(handle, ordering="PER_SHARD", clock=VirtualClock())
        process = await group.join(("s", "t"), sink=sink)
        await group.wait_until(lambda: len(keys(process)) == 2)
        group.source.shards["t/shard-1"].put(*range(EPOCH_MS, EPOCH_MS + 20))
        await group.wait_until(lambda: process.fetcher.sink_unfinished().records == 20)
        group.source.deleted.add("t")
        await asyncio.sleep(60)
        await process.stop()

    run_virtual(run())
    assert [line for line in caplog.messages if "dropped" in line] == [
        "records of deleted streams were not finished in 20 s: they are dropped, and cannot be read again: t/shard-1"
    ]


def test_the_shards_of_a_deleted_stream_are_idle_and_not_looked_for_until_their_leases_are_gone():  # S8
    async def run():
        group = ElasticProcesses(2, streams=("s", "t"))
        processes = [await group.join(("s", "t")) for _ in range(2)]
        await group.wait_until(lambda: [keys(each) for each in processes] == [["s/shard-0"], ["t/shard-1"]])
        leased = processes[1].fetcher._ownership.leased
        group.source.deleted.add("t")
        await group.wait_until(lambda: not keys(processes[1]))
        assert [each.is_idle for each in leased.watermarks().values()] == [True]
        assert not leased.unknown
        for each in processes:
            await each.stop()

    run_virtual(run())


def test_the_shards_of_a_stream_that_was_deleted_while_nobody_ran_are_no_gap():  # S5, S10
    async def story(group, listed):
        first = await group.join(listed.of_process())
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        for key in ("t/shard-1", "t/shard-3"):
            del group.source.shards[key]
        group.source.deleted.add("t")
        second = await group.join(listed.of_process())
        group.send()
        await group.wait_until_all_is_written()
        await asyncio.sleep(60)
        assert not second.running.done()
        await second.stop()

    played(story, "s", "t")


@pytest.mark.parametrize("seconds", [2, 60])
def test_a_stream_that_is_deleted_and_made_again_is_read_from_its_beginning(seconds):  # S8
    """Its shards have the ids of the former ones, and listings may not show that it was away for some seconds."""

    async def run():
        group = ElasticProcesses(4, streams=("s", "t"))
        processes = [await group.join(("s", "t")) for _ in range(2)]
        group.send()
        await group.wait_until_all_is_written()
        await group.wait_until(lambda: all(len(each.fetcher.metrics()["shards"]) == 2 for each in processes))
        group.source.deleted.add("t")
        del group.source.shards["t/shard-3"]
        await asyncio.sleep(seconds)
        group.source.add("shard-1", 100, 200, stream="t")
        group.source.deleted.clear()
        await asyncio.sleep(60)
        rows = [row for row in group.rows if row[1] >= 100]
        for each in processes:
            await each.stop()
        return rows

    assert run_virtual(run()) == [("shard-1", 100), ("shard-1", 200)]
