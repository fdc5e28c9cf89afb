"""W8, W9: the cases in which Flink's alignment stalls or overshoots; each ends with an empty queue."""

import asyncio
import logging
import random

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

SECONDS = 60_000
DISORDER = 500


def run_to_rest(source, properties, script=None, seconds=200, **parts):
    """Run while `script` runs; returns the rows written, and how many records are queued at the end."""
    sink = RecordingSink()

    async def job():
        fetcher = make_fetcher(source, sink, properties, **parts)
        await fetcher.open()
        playing = asyncio.create_task(script()) if script else None
        running = asyncio.create_task(fetcher.run_bounded(Bounds()))
        await asyncio.sleep(seconds)
        if playing:
            await playing
        queued = sum(shard["queuedRecords"] for shard in fetcher.metrics()["shards"].values())
        fetcher.stop()
        await running
        await fetcher.close()
        return queued

    return sink.rows, run_virtual(job())


def skewed(disorder=0):
    """60 s of backlog in three shards that are written at 1 : 10 : 100."""
    source, draw = ScriptedSource(per_read=50), random.Random(5)
    for name, step in (("sparse", 2_000), ("medium", 200), ("dense", 20)):
        source.add(name, *(time - draw.randint(0, disorder) for time in range(disorder, SECONDS, step)))
    return source


def spread(rows):
    """How far any written event time was above the lowest one written later."""
    lowest, widest = float("inf"), 0
    for _, time in reversed(rows):
        lowest = min(lowest, time)
        widest = max(widest, time - lowest)
    return widest


@pytest.mark.parametrize("lookahead", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (100, 2_000))])
@pytest.mark.parametrize("disorder", [0, DISORDER])
def test_a_skew_of_1_to_10_to_100_spreads_no_further_than_lookahead_and_disorder(lookahead, disorder):
    properties = {
        "flink.watermark.lookahead.millis": lookahead,
        "flink.watermark.outoforderness.millis": disorder,
        "flink.shard.idle.interval": 10_000,
    }
    source = skewed(disorder)
    rows, queued = run_to_rest(source, properties)

    assert spread(rows) <= lookahead + disorder
    assert len(rows) == sum(len(each.times) for each in source.shards.values())
    assert queued == 0


def test_without_alignment_the_same_skew_spreads_far():
    rows, _ = run_to_rest(skewed(), {})

    assert spread(rows) > 20_000


@pytest.mark.parametrize("ends", [False, True], ids=["speaks", "ends"])
def test_idle_interval_off_waits_with_a_warning_until_the_silent_shard_has_records_or_ends(ends, caplog):  # W2
    caplog.set_level(logging.WARNING)
    source = ScriptedSource()
    source.add("busy", *range(0, SECONDS, 1_000))
    silent = source.add("silent", 0)
    written_while_silent = []

    async def script():
        await asyncio.sleep(150)
        written_while_silent.append("waiting for shard s/silent" in caplog.text)
        if ends:
            source.close_shard("silent")
        else:
            silent.put(SECONDS)

    rows, queued = run_to_rest(source, {"flink.watermark.lookahead.millis": 5_000}, script)

    assert written_while_silent == [True]
    assert len(rows) == 60 + (1 if ends else 2)
    assert queued == 0


@pytest.mark.parametrize("idle_interval", [-1, 5_000])
def test_a_lookahead_of_0_writes_in_strict_order_and_does_not_stall(idle_interval):
    source = skewed()
    for name in ("sparse", "medium", "dense"):
        source.close_shard(name)
    rows, queued = run_to_rest(
        source, {"flink.watermark.lookahead.millis": 0, "flink.shard.idle.interval": idle_interval}
    )

    assert [time for _, time in rows] == sorted(time for _, time in rows)
    assert (len(rows), queued) == (30 + 300 + 3_000, 0)


def test_a_lookahead_below_the_disorder_does_not_stall():
    properties = {
        "flink.watermark.lookahead.millis": 10,
        "flink.watermark.outoforderness.millis": 3_000,
        "flink.shard.idle.interval": 5_000,
    }
    rows, queued = run_to_rest(skewed(3_000), properties)

    assert (len(rows), queued) == (29 + 285 + 2_850, 0)


def test_a_single_worker_continues_after_a_gap_above_the_lookahead():
    source = ScriptedSource()
    shard = source.add("a", 0)

    async def script():
        await asyncio.sleep(60)
        shard.put(10**9, 2 * 10**9)

    properties = {"flink.watermark.lookahead.millis": 1_000, "flink.shard.idle.interval": 5_000}
    rows, queued = run_to_rest(source, properties, script)

    assert (rows, queued) == ([("a", 0), ("a", 10**9), ("a", 2 * 10**9)], 0)


@pytest.mark.parametrize("idle_interval", [-1, 5_000])
def test_a_new_child_far_ahead_does_not_stall(idle_interval):  # the connector's defects 4.4(3) and (4)
    source = ScriptedSource()
    source.add("a", 0, 1_000)

    async def script():
        await asyncio.sleep(30)
        source.split("a", "b", "c")
        for child, time in (("b", 10**9), ("c", 2 * 10**9)):
            source.shards[f"s/{child}"].put(time)
            source.close_shard(child)

    properties = {"flink.watermark.lookahead.millis": 1_000, "flink.shard.idle.interval": idle_interval}
    rows, queued = run_to_rest(source, properties, script)

    assert (rows, queued) == ([("a", 0), ("a", 1_000), ("b", 10**9), ("c", 2 * 10**9)], 0)
