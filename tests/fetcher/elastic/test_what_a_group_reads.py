"""E10: all processes of a group read the same streams; others may be given when nobody is in."""

import asyncio
import json
from dataclasses import replace

import pytest

from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ConnectedStore, ElasticProcess, ElasticProcesses, TimedSink


def group_of_two_streams(shards=4):
    """A group whose source has the streams s and t, half of the shards each."""
    return ElasticProcesses(shards, streams=("s", "t"))


def keys(process):
    return sorted(process.fetcher.metrics()["shards"])


async def wait_until_it_reads(group, process, *streams):
    await group.wait_until(lambda: {key.partition("/")[0] for key in keys(process)} == set(streams))


async def read_all(group, process):
    group.send()
    await group.wait_until_all_is_written()
    await process.stop()


def rows_of(group, stream):
    shards = {each.shard.shard_id for each in group.source.shards.values() if each.shard.stream == stream}
    return sorted(row for row in group.rows if row[0] in shards)


def test_another_stream_is_refused_while_a_worker_sends_heartbeats():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        began = asyncio.get_running_loop().time()
        with pytest.raises(StateError) as error:
            await group.join(("t",))
        took = asyncio.get_running_loop().time() - began
        await wait_until_it_reads(group, first, "s")
        name = first.fetcher.metrics()["worker"]["worker"]
        await first.stop()
        return str(error.value), name, took

    message, name, took = run_virtual(story())
    assert f"its worker {name} still sends heartbeats to memory" in message
    assert "reads s, and this process reads t" in message
    assert "first stop all processes of the group" in message
    assert took < DURATION / 2


def test_another_stream_is_read_after_all_processes_have_ended():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        await first.stop()
        began = asyncio.get_running_loop().time()
        second = await group.join(("t",))
        await wait_until_it_reads(group, second, "t")
        took = asyncio.get_running_loop().time() - began
        await second.stop()
        return took

    assert run_virtual(story()) < DURATION / 2


def test_another_stream_is_read_when_a_killed_worker_was_silent_for_the_lease_duration():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        await first.kill()
        began = asyncio.get_running_loop().time()
        second = await group.join(("t",))
        took = asyncio.get_running_loop().time() - began
        await wait_until_it_reads(group, second, "t")
        await second.stop()
        return took

    assert DURATION <= run_virtual(story()) < DURATION * 1.5


def test_a_worker_that_was_silent_while_others_began_to_read_another_stream_ends():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        first.store.is_cut = True
        second = await group.join(("t",))
        await wait_until_it_reads(group, second, "t")
        first.store.is_cut = False
        with pytest.raises(StateError, match="reads t, and this process reads s"):
            await first.running
        await read_only_its_stream(group, second)

    async def read_only_its_stream(group, second):
        await asyncio.sleep(2 * DURATION)
        assert {key.partition("/")[0] for key in keys(second)} == {"t"}
        await second.stop()

    run_virtual(story())


def test_a_stream_that_is_added_begins_at_the_start_of_the_group_and_the_others_go_on():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        group.send()
        await asyncio.sleep(10)
        await first.stop()
        await read_all(group, await group.join(("s", "t")))
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_a_stream_that_is_added_begins_where_latest_was_pinned():
    """By the first process (P3): what came before is not read, and nothing that came since is missed."""

    async def story():
        group = group_of_two_streams(shards=2)
        first = await group.join(("s",), latest_ms=1_000)
        await wait_until_it_reads(group, first, "s")
        group.source.shards["t/shard-1"].put(900, 1_100, 1_900)
        await first.stop()
        second = await group.join(("s", "t"), latest_ms=2_000)
        await group.wait_until(lambda: ("shard-1", 1_900) in group.rows)
        await second.stop()
        return rows_of(group, "t")

    assert run_virtual(story()) == [("shard-1", 1_100), ("shard-1", 1_900)]


def test_a_stream_that_is_removed_keeps_its_positions_until_it_is_back():
    async def story():
        group = group_of_two_streams()
        await read_all(group, await group.join(("s", "t")))
        second = await group.join(("s",))
        await wait_until_it_reads(group, second, "s")
        group.send()
        await asyncio.sleep(60)
        of_removed = len(rows_of(group, "t"))
        third = await group.join(("s",))
        await asyncio.sleep(60)
        await second.stop()  # its shards of the removed stream go to the other
        await asyncio.sleep(10)
        await third.kill()
        await read_all(group, await group.join(("s", "t")))
        return group, of_removed

    group, of_removed = run_virtual(story())
    assert of_removed == 2 * 5
    assert rows_of(group, "t") == sorted(row for row in group.sent if row[0] in ("shard-1", "shard-3"))


def test_a_stream_that_is_removed_holds_no_watermark_and_is_not_looked_for():
    async def story():
        group, listings = group_of_two_streams(shards=2), []
        list_shards = group.source.list_shards
        group.source.list_shards = lambda *given: listings.append(given) or list_shards(*given)
        group.source.shards["t/shard-1"].put(100)
        first = await group.join(("s", "t"))
        await wait_until_it_reads(group, first, "s", "t")
        await first.stop()
        second = await group.join(("s",))
        await wait_until_it_reads(group, second, "s")
        group.source.shards["s/shard-0"].put(9_000)
        await group.wait_until(lambda: 9_000 in second.sink.watermarks)
        before = len(listings)
        await asyncio.sleep(30)
        await second.stop()
        return len(listings) - before

    assert run_virtual(story()) < 6, "one in ten seconds, and none for the shard that is not read"


def test_of_two_first_processes_with_different_streams_one_ends():
    async def story():
        group = group_of_two_streams()
        processes = await asyncio.gather(group.join(("s",)), group.join(("t",)))
        await group.wait_until(lambda: any(each.running.done() for each in processes))
        (loser,) = [each for each in processes if each.running.done()]
        (winner,) = [each for each in processes if each is not loser]
        await asyncio.sleep(2 * DURATION)
        assert not winner.running.done()
        await winner.stop()
        return loser.running.exception()

    error = run_virtual(story())
    assert isinstance(error, StateError)
    assert "and this process reads" in str(error)


def test_the_order_of_the_streams_is_of_no_importance():
    async def story():
        group = group_of_two_streams()
        first, second = await group.join(("s", "t")), await group.join(("t", "s"))
        await read_all(group, first)
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_a_list_that_changes_and_a_fixed_one_are_different():
    """A process with a fixed list would get leases of streams that it never reads."""

    async def story():
        group = group_of_two_streams()
        changing = StreamList(("s",), look=lambda: asyncio.sleep(0, ("s",)))
        first = await group.join(changing)
        await wait_until_it_reads(group, first, "s")
        with pytest.raises(StateError, match="reads a list of streams that may change, and this process reads s"):
            await group.join(("s",))
        await first.stop()
        await read_all(group, await group.join(("s", "t")))

    run_virtual(story())


def table_of(group):
    return json.loads(group.store.values[LEASE_TABLE].value)


def test_a_table_from_before_the_streams_were_in_it_is_read_and_completed():
    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        old = table_of(group)
        del old["job"]
        stored = group.store.values[LEASE_TABLE]
        group.store.values[LEASE_TABLE] = VersionedValue(json.dumps(old).encode(), stored.version)
        second = await group.join(("s",))
        await group.wait_until(lambda: len(keys(first)) == len(keys(second)) == 1)
        completed = table_of(group)
        await first.stop()
        await second.stop()
        return completed

    assert run_virtual(story())["job"]["streams"] == ["s"]


# bounded runs: a process has no shard at its start, and children come with a later lease (S2, S8)


async def read_to_the_tip(group):
    sink = TimedSink(group.rows, cost=0)
    process = ElasticProcess(group.source, ConnectedStore(group.store), sink, {}, ["s"])
    await process.fetcher.open()
    result = await process.fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=600))
    await process.fetcher.close()
    return result.reason


def test_the_first_process_reads_what_there_is_before_it_says_tip():
    group = ElasticProcesses(shards=3)
    group.send()
    assert run_virtual(read_to_the_tip(group)) is EndReason.TIP
    assert sorted(group.rows) == sorted(group.sent)


def test_the_children_of_a_shard_that_was_split_are_read_before_it_says_tip():
    group = ElasticProcesses(shards=1)
    group.send()
    group.source.split("shard-0", "left", "right")
    parent = group.source.shards["s/shard-0"]
    parent.shard = replace(parent.shard, closed=True)
    group.send()
    assert run_virtual(read_to_the_tip(group)) is EndReason.TIP
    assert sorted(group.rows) == sorted(group.sent)
    assert len(group.rows) == 15


@pytest.mark.parametrize(("streams", "is_warned"), [(("t",), True), (("s", "t"), False)])
def test_a_group_without_workers_that_read_only_other_streams_is_a_warning(streams, is_warned, caplog):
    """A copied properties file, with the flink.state.uri of another application."""

    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        await first.stop()
        second = await group.join(streams)
        await wait_until_it_reads(group, second, *streams)
        await second.stop()

    run_virtual(story())
    warned = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert [line.partition(".")[0] for line in warned] == [
        "the stored positions in memory belong to s, and this job reads t"
    ] * is_warned


def test_positions_of_a_stream_that_is_no_longer_read_are_kept_without_being_counted(caplog):
    begins = []

    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        await first.stop()
        caplog.clear()
        second = await group.join(("t",))
        await wait_until_it_reads(group, second, "t")
        await second.stop()
        begins.append(caplog.text)
        caplog.clear()
        third = await group.join(("s",))
        await wait_until_it_reads(group, third, "s")
        await third.stop()

    with caplog.at_level("INFO"):
        run_virtual(story())
    assert "2 stored positions found, but of other shards" in begins[0]
    assert "continues at stored positions of 2 shards" in caplog.text
    assert [line for line in caplog.messages if " takes " in line and "t/" in line] == []


def test_two_new_processes_that_start_together_after_a_kill_both_join():
    async def join_later(group):
        await asyncio.sleep(1)
        return await group.join(("t",))

    async def story():
        group = group_of_two_streams()
        first = await group.join(("s",))
        await wait_until_it_reads(group, first, "s")
        await first.kill()
        one, other = await asyncio.gather(group.join(("t",)), join_later(group))
        # Each reads one of the two shards, although the lease table also has those of the other stream.
        await wait_until_it_reads(group, one, "t")
        await wait_until_it_reads(group, other, "t")
        await asyncio.gather(one.stop(), other.stop())

    run_virtual(story())
