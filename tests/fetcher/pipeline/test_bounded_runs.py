"""Bounded runs of many shards: none prevents the end of the run, or the share of others."""

import asyncio

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher, read

TIP = Bounds(stop_at_tip=True, max_time=600)


def test_a_shard_that_keeps_growing_does_not_prevent_the_end_of_a_run():
    """Each has new records by the time the last one, far behind, is at its tip."""
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("far", *range(1000))
    growing = [source.add(f"busy-{n}", 0) for n in range(3)]

    async def grow():
        while True:
            await asyncio.sleep(0.07)
            for each in growing:
                each.put(len(each.times))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        writer = asyncio.create_task(grow())
        first = await fetcher.run_bounded(TIP)
        rows_of_first = list(sink.rows)
        await asyncio.sleep(1)
        writer.cancel()
        await fetcher.run_bounded(TIP)
        return first, rows_of_first

    first, rows_of_first = run_virtual(job())

    assert first.reason is EndReason.TIP
    assert [first.shards[f"s/busy-{n}"].seen.at_tip for n in range(3)] == [True] * 3
    assert all(sum(shard == f"busy-{n}" for shard, _ in rows_of_first) < 10 for n in range(3))
    assert sorted(sink.rows) == sorted([(s.shard.shard_id, t) for s in source.shards.values() for t in s.times])


def test_a_huge_shard_leaves_the_others_their_share_of_the_bytes():  # P7
    source, sink = ScriptedSource(per_read=1000), RecordingSink()
    source.add("a-huge", *range(1000))
    small = [source.add(f"small-{n}", *range(5)).shard.shard_id for n in range(20)]

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        for _ in range(5):
            assert (await fetcher.run_bounded(Bounds(max_bytes=100, max_time=60))).reason is EndReason.MAX_BYTES

    run_virtual(job())

    read = [shard for shard, _ in sink.rows]
    assert [read.count(shard) for shard in small] == [5] * 20
    assert 0 < read.count("a-huge") < 1000


def test_a_run_that_leaves_records_of_its_last_read_is_not_at_the_tip():
    """Spark trusts that nothing is left (`at_tip`)."""
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("a", *range(10))

    _, result = run_virtual(read(source, sink, Bounds(max_records=3)))

    outcome = result.shards["s/a"].seen
    assert outcome.tip_seen_ms is not None, "the last read stood at the tip"
    assert (result.records, outcome.at_tip) == (3, False)


def test_a_run_that_leaves_records_of_its_last_read_is_as_far_behind_as_its_last_record():
    source, sink = ScriptedSource(per_read=10, arrives_when_timed=True), RecordingSink()
    source.add("a", *range(0, 100, 10))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        result = await fetcher.run_bounded(Bounds(max_records=3))
        return result.shards["s/a"].seen, fetcher.metrics()["shards"]["s/a"]["millisBehindLatest"]

    outcome, gauge = run_virtual(job())

    assert (outcome.behind_ms, outcome.at_tip) == (70, False)
    assert gauge >= 70


def test_a_shard_that_ended_in_a_bounded_run_holds_the_watermark_for_its_child_elsewhere():  # W5
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("a", 1, 2, 3)
    source.add("z", *range(1, 20))
    source.split("a", "b")

    async def job():
        fetcher = make_fetcher(
            source,
            sink,
            is_ours=lambda shard: shard.shard_id != "b",
            is_endless=lambda stream: True,
        )
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=5))
        return fetcher.metrics()["worker"]["blockingShard"]

    assert run_virtual(job()) == "s/a"


def test_a_run_that_is_over_where_it_ends_in_each_shard_says_so():
    source, sink = ScriptedSource(per_read=7), RecordingSink()
    source.add("a", *range(20))

    _, result = run_virtual(read(source, sink, Bounds(ends={"s/a": EndPosition(0, 13)}, max_time=100)))

    assert sink.rows == [("a", time) for time in range(13)]
    assert result.reason is EndReason.SHARD_LIMITS
    assert result.reason.value.endswith("or the position at which the run ends in it")
