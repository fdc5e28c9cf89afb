"""Event-time alignment, idleness and watermarks of a whole fetcher, on virtual time."""

import asyncio
import random
from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.testing.virtual_time import run_virtual

from fakes.other_workers import OtherWorkers
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


def spread_of(rows):
    """How far any written event time was ahead of the lowest one not written yet."""
    lowest_left = [time for _, time in rows]
    for index in range(len(rows) - 2, -1, -1):
        lowest_left[index] = min(lowest_left[index], lowest_left[index + 1])
    return max(time - left for (_, time), left in zip(rows, lowest_left, strict=True))


async def read_all(source, sink, properties, bounds=None, **parts):
    fetcher = make_fetcher(source, sink, properties, **parts)
    await fetcher.open()
    result = await fetcher.run_bounded(bounds or Bounds(stop_at_tip=True, max_time=10_000))
    return fetcher, result


def skewed_source(**more):
    source = ScriptedSource(**more)
    source.add("dense", *range(0, 60_000, 20))
    source.add("medium", *range(0, 60_000, 200))
    source.add("sparse", *range(0, 60_000, 2_000))
    return source


@pytest.mark.parametrize("lookahead", [0, 500, 5_000])
def test_emitted_spread_never_exceeds_the_lookahead(lookahead):  # W8
    source, sink = skewed_source(per_read=50), RecordingSink()

    _, result = run_virtual(read_all(source, sink, {"flink.watermark.lookahead.millis": lookahead}))

    assert result.reason is EndReason.TIP
    assert len(sink.rows) == 3_000 + 300 + 30
    assert spread_of(sink.rows) <= lookahead


def test_without_lookahead_shards_run_ahead():
    source, sink = skewed_source(per_read=50), RecordingSink()

    run_virtual(read_all(source, sink, {}))

    assert spread_of(sink.rows) > 20_000


def test_a_lookahead_below_the_out_of_orderness_does_not_stall():  # W8, the connector's defect 4.4(2)
    source, sink = ScriptedSource(), RecordingSink()
    order = random.Random(7)
    for shard in "ab":
        source.add(shard, *(max(0, t + order.randint(-3_000, 0)) for t in range(0, 100_000, 500)))
    properties = {"flink.watermark.lookahead.millis": 10, "flink.watermark.outoforderness.millis": 3_000}

    run_virtual(read_all(source, sink, properties))

    assert len(sink.rows) == 400


def test_a_silent_shard_holds_the_others_until_it_is_idle():  # W2, W3, W9
    source, sink = ScriptedSource(), RecordingSink()
    source.add("busy", *range(0, 100_000, 1_000))
    source.add("silent", 0)
    properties = {"flink.watermark.lookahead.millis": 5_000, "flink.shard.idle.interval": 10_000}

    async def job():
        fetcher = make_fetcher(source, sink, properties)
        await fetcher.open()
        early = await fetcher.run_bounded(Bounds(max_time=8))
        late = await fetcher.run_bounded(Bounds(max_time=20))
        return early.records, early.records + late.records, fetcher.metrics()

    early, everything, metrics = run_virtual(job())

    assert early == 1 + 6
    assert everything == 101
    assert metrics["worker"]["idleShards"] == 2


def test_idle_interval_off_waits_for_every_shard_until_it_has_records():  # W2
    source, sink = ScriptedSource(), RecordingSink()
    source.add("busy", *range(0, 100_000, 1_000))
    silent = source.add("silent", 0)

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.watermark.lookahead.millis": 5_000})
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=1_000))
        held = len(sink.rows)
        silent.put(200_000)
        await fetcher.run_bounded(Bounds(max_time=10))
        return held, fetcher.metrics()

    held, metrics = run_virtual(job())

    assert held == 7
    assert len(sink.rows) == 101, "the silent shard's own record is held now, the others were emitted"
    assert metrics["shards"]["s/silent"]["held"] or sink.rows[-1][0] == "busy"


def test_an_idle_shard_that_resumes_far_ahead_is_emitted():  # FLINK-29099
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 0)
    properties = {"flink.watermark.lookahead.millis": 1_000, "flink.shard.idle.interval": 2_000}

    async def job():
        fetcher = make_fetcher(source, sink, properties)
        await fetcher.open()
        asyncio.get_running_loop().call_later(60, lambda: source.shards["s/a"].put(900_000_000))
        await fetcher.run_bounded(Bounds(max_records=2, max_time=100))

    run_virtual(job())

    assert sink.rows == [("a", 0), ("a", 900_000_000)]


def test_a_new_child_far_ahead_is_emitted_when_the_others_are_idle_or_catch_up():  # W5, W9
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(0, 10_000, 1_000))
    source.add("b", *range(0, 2_000_000, 50_000))
    source.split("a", "c")
    source.shards["s/c"].put(1_900_000)

    run_virtual(read_all(source, sink, {"flink.watermark.lookahead.millis": 60_000}))

    assert len(sink.rows) == 10 + 40 + 1


def test_failing_reads_do_not_count_as_silence():  # W3
    source, sink = ScriptedSource(), RecordingSink()
    source.add("busy", *range(0, 100_000, 1_000))
    source.add("stuck", 0, 1)
    source.silent.add("s/stuck")
    properties = {"flink.watermark.lookahead.millis": 5_000, "flink.shard.idle.interval": 10_000}

    run_virtual(read_all(source, sink, properties, Bounds(max_time=500)))

    assert sink.rows == []


def test_the_sinks_watermark_never_falls_and_never_passes_what_was_written():  # W1
    source, sink = skewed_source(per_read=50), RecordingSink()

    run_virtual(read_all(source, sink, {"flink.watermark.outoforderness.millis": 100}, Bounds(max_time=60)))

    assert sink.watermarks == sorted(set(sink.watermarks))
    assert sink.watermarks[-1] == 58_000 - 100
    written = {"dense": 0, "medium": 0, "sparse": 0}
    for kind, what in sink.events:
        if kind == "write":
            written[what[0]] += what[1]
        elif kind == "watermark":
            steps = {"dense": 20, "medium": 200, "sparse": 2_000}
            assert all((written[shard] - 1) * step - 100 >= what for shard, step in steps.items())


def test_the_sink_is_notified_once_that_the_worker_became_idle():  # W1
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1)

    run_virtual(read_all(source, sink, {"flink.shard.idle.interval": 1_000}, Bounds(max_time=30)))

    assert [event for event in sink.events if event[0] == "idle"] == [("idle", None)]


def test_a_small_budget_never_dead_locks_alignment():  # P6, W9
    source, sink = ScriptedSource(per_read=100), RecordingSink()
    for shard in range(8):
        source.add(f"fast{shard}", *range(0, 200_000, 100))
    source.add("slow", *range(0, 200_000, 10_000))
    properties = {
        "flink.watermark.lookahead.millis": 1_000,
        "flink.worker.queue.bytes": 65_536,
        "flink.shard.queue.bytes": 65_536,
    }

    run_virtual(read_all(source, sink, properties))

    assert len(sink.rows) == 8 * 2_000 + 20
    assert spread_of(sink.rows) <= 1_000


def test_the_shards_of_a_worker_are_aligned_with_those_of_others():  # W6
    source, sink, others = ScriptedSource(per_read=50), RecordingSink(), OtherWorkers(0)
    source.add("a", *range(0, 60_000, 20))
    ahead = []

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.watermark.lookahead.millis": 1_000}, tracker=others)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=10_000)))
        for others.lowest in range(0, 60_000, 2_000):
            await asyncio.sleep(5)
            ahead.append(sink.rows[-1][1] - others.lowest)
        others.lowest = 10**6
        await running

    run_virtual(job())

    assert len(sink.rows) == 3_000
    assert set(ahead) == {1_000}


def test_the_last_watermark_of_a_bounded_run_is_the_lowest_of_its_shards():
    """Shards that have reached their bounds do not hold back the others, but windows must close when all have. One shard has no record."""
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1_000)
    source.add("b", 5_000)
    source.add("empty")

    run_virtual(read_all(source, sink, {}))

    assert sink.watermarks[-1] == 1_000
    assert ("idle", None) not in sink.events


def test_a_bounded_run_that_reads_nothing_new_tells_the_watermark_of_the_stored_positions():
    source, again = ScriptedSource(), RecordingSink()
    source.add("a", 1_000)

    async def run():
        first, _ = await read_all(source, RecordingSink(), {})
        second = make_fetcher(source, again, {}, restore=(first.snapshot(),))
        await second.open()
        await second.run_bounded(Bounds(stop_at_tip=True, max_time=10_000))

    run_virtual(run())
    assert (again.rows, again.watermarks) == ([], [1_000])


@pytest.mark.parametrize("later", [1, 50])
def test_a_shard_that_has_only_records_after_the_event_time_bound_does_not_hold_back_the_last_watermark(later):
    """With many of them the run does not read up to the tip."""
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("a", 1_000, 3_000, 8_000)
    source.add("b", *range(9_000, 9_000 + later))

    run_virtual(read_all(source, sink, {}, Bounds(until_event_time=5_000, stop_at_tip=True, max_time=60)))

    assert sink.rows == [("a", 1_000), ("a", 3_000)]
    assert sink.watermarks[-1:] == [3_000]


def test_a_shard_whose_records_are_left_to_the_next_run_holds_back_the_last_watermark():
    """The limit of `b` leaves its only record, which is below the watermark of `a`."""
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 5_000)
    source.add("b", 1_000)

    run_virtual(read_all(source, sink, {}, Bounds(shard_limits={"s/a": 1, "s/b": 0}, max_time=30)))

    assert sink.rows == [("a", 5_000)]
    assert sink.watermarks == []


@pytest.mark.parametrize("bounds", [Bounds(stop_at_tip=True, max_time=30), Bounds(max_time=30)], ids=["tip", "endless"])
def test_the_last_watermark_of_a_finite_source_is_the_highest_of_its_shards(bounds):
    """No record follows, so every window may close. A shard that has ended holds nothing back."""
    source, sink = ScriptedSource(), RecordingSink()
    for shard_id, time in (("a", 6_000), ("b", 1_000)):
        scripted = source.add(shard_id, time)
        scripted.shard, scripted.closed = replace(scripted.shard, closed=True), True

    _, result = run_virtual(read_all(source, sink, {}, bounds))

    assert result.reason is EndReason.ALL_ENDED
    assert sink.watermarks[-1:] == [6_000]
