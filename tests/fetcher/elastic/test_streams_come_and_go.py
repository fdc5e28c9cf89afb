"""S10, E12: in a group of processes, streams come into the list and leave it; the shards of one that left keep their positions."""

import asyncio

from recordpublisher.fetcher.shards.stream_list import StreamList
from recordpublisher.testing import run_virtual

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
