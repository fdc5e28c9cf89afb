"""ListShards is eventually consistent: what a listing lacks for a while is read once, and parents before children (S2, S3, S5)."""

import asyncio
from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

MINUTE = Bounds(max_time=60)
ENDLESS = {"is_endless": lambda stream: True}
DOES_NOT_TELL = {"shard_exists": None}


def split(parent_records, child_records):
    """A stream with a closed shard `parent` and its child `child`."""
    source = ScriptedSource()
    source.add("parent", *parent_records)
    source.split("parent", "child")
    source.shards["s/child"].put(*child_records)
    return source


def at(seconds, action, *arguments):
    asyncio.get_running_loop().call_later(seconds, action, *arguments)


async def run_one(source, sink, **more):
    fetcher = make_fetcher(source, sink, **more)
    await fetcher.open()
    return await fetcher.run_bounded(MINUTE)


def test_a_closed_parent_listed_without_its_child_does_not_end_the_run():  # S8
    source, sink = split([1, 2], [7]), RecordingSink()
    parent = source.shards["s/parent"]
    parent.shard, parent.children = replace(parent.shard, closed=True), ()

    async def job():
        source.unlisted.add("s/child")
        at(25, source.unlisted.clear)
        return await run_one(source, sink, **ENDLESS)

    result = run_virtual(job())

    assert sink.rows == [("parent", 1), ("parent", 2), ("child", 7)]
    assert result.reason is EndReason.MAX_TIME


@pytest.mark.parametrize(("more", "seconds"), [({}, 45), (DOES_NOT_TELL, 25)])
def test_a_child_waits_for_an_unfinished_parent_that_a_later_listing_lacks(more, seconds):  # S2
    source, written = split(range(300), [7]), []
    source.per_read, source.latency = 1, 0.15

    class Sink(RecordingSink):
        async def write(self, batch):
            written.append(batch.shard_id)

    async def job():
        at(5, source.unlisted.add, "s/parent")
        at(seconds, source.unlisted.clear)
        await run_one(source, Sink(), **more)

    run_virtual(job())

    assert written == ["parent"] * 300 + ["child"]


@pytest.mark.parametrize(("more", "seconds"), [({}, 45), (DOES_NOT_TELL, 1.5)])
def test_a_child_waits_for_a_parent_that_the_first_listing_lacks(more, seconds):  # S2
    source, sink = split(range(20), [7]), RecordingSink()

    async def job():
        source.unlisted.add("s/parent")
        at(seconds, source.unlisted.clear)
        fetcher = make_fetcher(source, sink, **more)
        await fetcher.open()
        await fetcher.run_bounded(MINUTE)

    run_virtual(job())

    assert sink.rows == [("parent", time) for time in range(20)] + [("child", 7)]


def test_a_child_whose_parent_is_past_retention_starts_at_once():
    source, sink = split([], [7]), RecordingSink()
    del source.shards["s/parent"]

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=1))

    run_virtual(job())

    assert sink.rows == [("child", 7)]


@pytest.mark.parametrize("more", [{}, DOES_NOT_TELL])
def test_an_ended_shard_that_vanishes_and_returns_is_not_read_again(more):  # S1, S5
    source, sink = split(range(20), [7]), RecordingSink()

    async def job():
        fetcher = make_fetcher(source, sink, **more)
        await fetcher.open()
        at(5, source.unlisted.add, "s/parent")
        at(65, source.unlisted.clear)
        await fetcher.run_bounded(Bounds(max_time=120))
        return fetcher.snapshot()["shards"]

    state = run_virtual(job())

    assert sink.rows == [("parent", time) for time in range(20)] + [("child", 7)]
    assert more or "s/parent" in state, "it has not expired"


@pytest.mark.parametrize("ends_before", [True, False])
def test_a_shard_missing_from_the_first_listing_of_a_restart_resumes_later(ends_before):  # S5
    source, sink = split(range(20), [7]), RecordingSink()
    source.shards["s/parent"].closed = ends_before

    async def job():
        first = make_fetcher(source, sink)
        await first.open()
        await first.run_bounded(Bounds(max_time=5))
        source.shards["s/parent"].closed = True
        source.unlisted.add("s/parent")
        at(45, source.unlisted.clear)
        second = make_fetcher(source, sink, restore=(first.snapshot(),))
        await second.open()
        await second.run_bounded(MINUTE)

    run_virtual(job())

    assert sink.rows == [("parent", time) for time in range(20)] + [("child", 7)]
