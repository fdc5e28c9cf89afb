"""Shards that begin, stop and are dropped while a fetcher runs: what is being written, and what their positions are (E1, E5)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.fetcher.leases.heartbeat import WritePermission
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing import run_virtual
from recordpublisher.testing.virtual_time import VirtualClock

from fakes.leases.elastic_processes import ElasticProcesses

WRITE_SECONDS = 4
START = ShardState(StartingPosition.trim_horizon())


@asynccontextmanager
async def fetcher_without_group(records=25, **properties):
    """A running fetcher whose worker does not reach the group: the test says which shards it has, and it may write."""
    group = ElasticProcesses(shards=1, cost=WRITE_SECONDS)
    group.send(records)
    process = await group.join(**properties)
    process.store.is_cut = True
    await asyncio.sleep(0.1)
    leased = process.leased
    permission = WritePermission(VirtualClock(), 1e9)
    permission.confirm(permission.send_time())
    process.worker.permission = permission
    yield group, process, leased
    await process.kill()


async def positions_of(leased):
    async with leased.checkpoint() as positions:
        return positions.stored


async def wait_for_a_write(group, process, key="s/shard-0"):
    """A batch was written, and the next one is being written."""
    await group.wait_until(lambda: bool(process.sink.rows))
    await asyncio.sleep(WRITE_SECONDS / 2)


def test_a_stopped_shard_has_the_position_of_the_write_that_was_going_on():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            leased.begin("s/shard-0", START)
            await wait_for_a_write(group, process)
            await leased.stop(["s/shard-0"])
            written = len(process.sink.rows)
            position = (await positions_of(leased))["s/shard-0"].state.position
            await asyncio.sleep(60)
            return written, len(process.sink.rows), position.sequence, group.source.created

    written, later, position, created = run_virtual(story())
    assert written == later == 20
    assert position == "19"
    assert len(created) == 1, "a stopped shard is not read again"


def test_a_shard_that_is_stopped_with_its_last_records_unwritten_has_not_ended():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            group.source.split("shard-0", "left", "right")
            leased.begin("s/shard-0", START)
            await wait_for_a_write(group, process)
            await leased.stop(["s/shard-0"])
            return (await positions_of(leased))["s/shard-0"]

    stored = run_virtual(story())
    assert not stored.state.ended
    assert stored.state.position.sequence == "19"


WITHOUT_WATERMARKS = {"flink.watermark.emit.interval": 10**9}
"""So that during a flush the emitter waits with a batch, and not with a watermark."""


async def take_the_shard_away_during_a_flush(take_away):
    """A batch waits for the end of a flush; meanwhile its shard is stopped or dropped.

    Returns how many records are written, and the memory that is used in the end.
    """
    async with fetcher_without_group(**WITHOUT_WATERMARKS) as (group, process, leased):
        flushed = asyncio.Event()

        async def flush(checkpoint):
            await flushed.wait()

        process.sink.flush = flush
        leased.begin("s/shard-0", START)
        await wait_for_a_write(group, process)
        checkpoint = asyncio.create_task(positions_of(leased))
        await asyncio.sleep(WRITE_SECONDS)
        taking_away = asyncio.create_task(take_away(leased))
        await asyncio.sleep(1)
        flushed.set()
        await asyncio.gather(checkpoint, taking_away)
        await asyncio.sleep(60)
        return len(process.sink.rows), process.fetcher.metrics()["worker"]["budgetUsedBytes"]


def test_a_batch_that_waits_for_a_flush_is_not_written_and_gives_its_memory_back_when_its_shard_is_stopped():
    assert run_virtual(take_the_shard_away_during_a_flush(lambda leased: leased.stop(["s/shard-0"]))) == (20, 0)


def test_a_batch_that_waits_for_a_flush_is_not_written_and_gives_its_memory_back_when_its_shard_is_dropped():
    async def drop(leased):
        leased.drop({"s/shard-0": RevocationReason.LOST})

    assert run_virtual(take_the_shard_away_during_a_flush(drop)) == (20, 0)


def test_a_shard_that_is_dropped_during_a_write_holds_no_watermark():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            leased.begin("s/shard-0", START)
            await wait_for_a_write(group, process)
            leased.drop({"s/shard-0": RevocationReason.LOST})
            await asyncio.sleep(WRITE_SECONDS)
            return process.fetcher.metrics()["worker"]["blockingShard"], process.shards, await positions_of(leased)

    assert run_virtual(story()) == (None, set(), {})


def test_a_dropped_shard_that_comes_back_goes_on_from_its_new_state():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            leased.begin("s/shard-0", START)
            await wait_for_a_write(group, process)
            leased.drop({"s/shard-0": RevocationReason.LOST})
            leased.begin("s/shard-0", START)
            await group.wait_until_all_is_written()
            return group.rows.count(("shard-0", 0))

    assert run_virtual(story()) == 2


def test_an_ended_shard_names_its_children_with_their_parents():
    async def story():
        async with fetcher_without_group(records=3) as (group, _, leased):
            group.source.split("shard-0", "left", "right")
            leased.begin("s/shard-0", START)
            await group.wait_until_all_is_written()
            await asyncio.sleep(1)
            return (await positions_of(leased))["s/shard-0"]

    stored = run_virtual(story())
    assert stored.state.ended
    assert stored.children == {"s/left": ("s/shard-0",), "s/right": ("s/shard-0",)}


def test_a_shard_that_no_listing_has_shown_yet_keeps_its_state_and_is_read_when_one_does():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            group.source.add("late", 5, 6)
            group.source.unlisted.add("s/late")
            leased.begin("s/late", ShardState(StartingPosition.trim_horizon(), watermark=3))
            await asyncio.sleep(5)
            before = (await positions_of(leased))["s/late"].state.watermark, leased.watermarks()["s/late"].value
            group.source.unlisted.clear()
            await group.wait_until(lambda: ("late", 6) in process.sink.rows)
            return before

    assert run_virtual(story()) == (3, 3)


def streams_that_change(*names):
    """A list of streams that is looked at by `on_streams` only."""
    return StreamList(names, look=lambda: asyncio.sleep(0, names), interval_seconds=1e9)


def test_a_stream_that_leaves_the_list_ends_its_write_and_has_the_position_behind_it():
    async def story():
        async with fetcher_without_group(streams=streams_that_change("s")) as (group, process, leased):
            leased.begin("s/shard-0", START)
            await wait_for_a_write(group, process)
            leased._streams._names = ("other",)
            await leased.on_streams()
            stored = (await positions_of(leased))["s/shard-0"]
            await asyncio.sleep(60)
            return len(process.sink.rows), stored, leased.watermarks()["s/shard-0"]

    written, stored, watermark = run_virtual(story())
    assert written == 20
    assert (stored.state.position.sequence, stored.is_idle) == ("19", True)
    assert watermark.is_idle


def test_a_shard_that_ended_stays_with_its_children_when_its_stream_leaves_the_list():
    async def story():
        async with fetcher_without_group(streams=streams_that_change("s")) as (group, process, leased):
            group.source.split("shard-0", "left", "right")
            leased.begin("s/shard-0", START)
            await group.wait_until(lambda: process.fetcher._table["s/shard-0"].state.ended)
            leased._streams._names = ("other",)
            await leased.on_streams()
            return (await positions_of(leased))["s/shard-0"]

    stored = run_virtual(story())
    assert stored.state.ended
    assert sorted(stored.children) == ["s/left", "s/right"]


def test_a_lease_that_comes_when_its_stream_has_left_the_list_is_not_read_nor_looked_for():
    async def story():
        async with fetcher_without_group(streams=streams_that_change("s")) as (_, process, leased):
            leased._streams._names = ("other",)
            leased.begin("s/shard-0", START)
            await asyncio.sleep(60)
            return process.sink.rows, leased.unknown, await positions_of(leased)

    rows, unknown, positions = run_virtual(story())
    assert (rows, unknown) == ([], set())
    assert positions["s/shard-0"].state == START


@pytest.mark.slow
def test_the_load_of_a_shard_that_is_held_for_long_follows_its_traffic():
    async def story():
        async with fetcher_without_group(records=0) as (group, process, leased):
            group.source.latency = 5
            leased.begin("s/shard-0", START)
            entry = process.fetcher._table["s/shard-0"]

            async def read(seconds, bytes_per_second):
                for _ in range(seconds // 5):
                    await asyncio.sleep(5)
                    entry.emission.payload_bytes += 5 * bytes_per_second
                    loads = leased.loads()
                return loads.get("s/shard-0")

            return await read(50, 1_000), await read(1_200, 1_000), await read(240, 80_000), await read(420, 1_000)

    first_minute, quiet, busy, quiet_again = run_virtual(story())
    assert first_minute is None
    assert 950 < quiet < 1_050
    assert 75_000 < busy < 83_000
    assert 950 < quiet_again < 1_200


class PartialSink:
    """Confirms, of each shard, the entry that it got first."""

    def __init__(self):
        self.first = {}

    async def flush(self, checkpoint):
        for key, entry in checkpoint.state["shards"].items():
            self.first.setdefault(key, entry)
        return {**checkpoint.state, "shards": self.first}


async def partial_positions(leased):
    async with leased.checkpoint(may_be_partial=True) as positions:
        return positions


def test_a_position_that_the_sink_has_from_an_earlier_lease_of_the_shard_does_not_count():
    async def story():
        async with fetcher_without_group() as (group, process, leased):
            process.sink.flush = PartialSink().flush
            leased.begin("s/shard-0", START)
            first = await partial_positions(leased)
            await wait_for_a_write(group, process)
            second = await partial_positions(leased)
            leased.drop({"s/shard-0": RevocationReason.LOST})
            leased.begin("s/shard-0", START)
            return first, second, await partial_positions(leased)

    first, second, third = run_virtual(story())
    assert (first.stored["s/shard-0"].state, first.unfinished) == (START, set())
    assert (second.stored["s/shard-0"].state, second.unfinished) == (START, {"s/shard-0"})
    assert (third.stored, third.unfinished) == ({}, {"s/shard-0"})


def test_what_waits_for_a_flush_holds_the_watermark_that_the_worker_states():  # W1, E8
    async def story():
        async with fetcher_without_group(10, **WITHOUT_WATERMARKS) as (group, process, leased):
            leased.begin("s/shard-0", START)
            await group.wait_until(lambda: len(process.sink.rows) == 10)
            async with process.fetcher._emitter.between_writes():  # a flush that takes long
                group.send(10)
                await asyncio.sleep(2)
                group.send(50)
                await asyncio.sleep(60)
                return group.source.shards["s/shard-0"].times[10], leased.watermarks()["s/shard-0"]

    first_unwritten, stated = run_virtual(story())
    assert (stated.value, stated.is_idle) == (first_unwritten, False)
