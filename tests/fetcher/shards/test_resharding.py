"""Shards that split and merge while a job reads them: parents first, children at once, each of them once (S2, S3)."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.positions import PositionType
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import TIP, RecordingSink, ScriptedSource, make_fetcher, read


def test_children_start_when_their_parents_last_record_was_emitted():  # S2
    source, sink = ScriptedSource(per_read=3), RecordingSink(cost=1.0)
    source.add("parent", *range(10))
    source.split("parent", "left", "right")
    source.shards["s/left"].put(20, 21)
    source.shards["s/right"].put(30)

    fetcher, _ = run_virtual(read(source, sink))

    assert [shard for shard, _ in sink.rows[:10]] == ["parent"] * 10
    assert len(sink.rows) == 13
    assert fetcher.snapshot()["shards"]["s/parent"]["ended"] is True
    assert fetcher.snapshot()["shards"]["s/left"]["position"] == "1"


def test_a_merged_child_waits_for_both_parents():  # S2
    source, sink = ScriptedSource(per_read=2), RecordingSink()
    source.add("quick", 1)
    source.add("slow", *range(100, 140))
    child = source.add("child", 500, parents=("quick", "slow")).shard
    source.close_shard("quick", child)
    source.close_shard("slow", child)

    run_virtual(read(source, sink))

    assert sink.rows[-1] == ("child", 500)
    assert len(sink.rows) == 42


def test_child_shards_of_the_last_read_are_read_before_the_next_listing():  # S3
    source, sink = ScriptedSource(), RecordingSink()
    source.add("parent", 1)

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.shard.discovery.intervalmillis": 1_000_000})
        await fetcher.open()
        source.split("parent", "child")
        source.shards["s/child"].put(7)
        await fetcher.run_bounded(TIP)

    run_virtual(job())

    assert sink.rows == [("parent", 1), ("child", 7)]
    assert source.created[1][1].type is PositionType.TRIM_HORIZON


def test_discovery_finds_a_new_shard():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1)

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        asyncio.get_running_loop().call_later(5, lambda: source.add("b", 9))
        await fetcher.run_bounded(Bounds(max_records=2))

    run_virtual(job())

    assert sorted(sink.rows) == [("a", 1), ("b", 9)]


def test_a_shard_has_not_ended_while_its_last_batch_is_being_written():  # S2
    source, sink = ScriptedSource(per_read=1, latency=1.0), RecordingSink(cost=5.0)
    source.add("parent", 1)

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=20)))
        await asyncio.sleep(1.5)
        source.split("parent", "child")
        await asyncio.sleep(2)
        during = fetcher.snapshot()["shards"]["s/parent"].get("ended", False), list(source.created)
        await running
        return during, fetcher.snapshot()["shards"]["s/parent"]["ended"]

    (ended, created), at_last = run_virtual(job())

    assert not ended
    assert [shard for shard, _ in created] == ["parent"]
    assert at_last


@pytest.mark.parametrize("discovery_ms", [100, 1_000_000])
def test_a_child_that_both_its_parent_and_a_listing_name_is_read_once(discovery_ms):  # S3
    source, sink = ScriptedSource(latency=1.0), RecordingSink()
    source.add("a", *range(20))

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.shard.discovery.intervalmillis": discovery_ms})
        await fetcher.open()
        asyncio.get_running_loop().call_later(0.5, source.split, "a", "b", "c")
        await fetcher.run_bounded(Bounds(max_time=60))

    run_virtual(job())

    assert sorted(shard_id for shard_id, _ in source.created) == ["a", "b", "c"]
    assert sink.rows == [("a", number) for number in range(20)]


def test_children_are_read_in_the_moment_in_which_their_parent_ends():  # S3
    """Neither a heartbeat nor a listing comes in that time."""
    source = ScriptedSource()
    source.add("parent", 1)
    hour = {"flink.watermark.sync.interval": 3_600_000, "flink.shard.discovery.intervalmillis": 3_600_000}

    async def job():
        fetcher = make_fetcher(source, RecordingSink(), hour)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        source.split("parent", "left", "right")
        await asyncio.sleep(60)
        fetcher.stop()
        await running
        return [shard for shard, _ in source.created]

    assert run_virtual(job()) == ["parent", "left", "right"]
