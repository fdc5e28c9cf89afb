"""The fetcher on virtual time: everything is emitted once, in order, with exact state."""

import asyncio
import json

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.publishers.errors import FatalKinesisError, StreamNotFoundError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher, read


def test_every_record_of_every_shard_is_written_in_order():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(0, 100))
    source.add("b", *range(1000, 1035))

    _, result = run_virtual(read(source, sink))

    assert result.reason is EndReason.TIP
    assert [time for shard, time in sink.rows if shard == "a"] == list(range(100))
    assert [time for shard, time in sink.rows if shard == "b"] == list(range(1000, 1035))


def test_a_restart_from_a_snapshot_resumes_exactly():  # S1, S5
    source = ScriptedSource(per_read=7)
    source.add("a", *range(50))
    source.add("b", *range(50))
    first, second = RecordingSink(), RecordingSink()

    async def job():
        fetcher, result = await read(source, first, Bounds(max_records=33))
        assert result.reason is EndReason.MAX_RECORDS
        stored = json.loads(json.dumps(fetcher.snapshot()))
        source.split("a", "c")
        source.shards["s/c"].put(99)
        await read(source, second, restore=(stored,))

    run_virtual(job())

    assert len(first.rows) == 33
    assert sorted(first.rows + second.rows) == sorted([(s, t) for s in "ab" for t in range(50)] + [("c", 99)])


def test_a_fetcher_can_run_again_after_a_run():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(100))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        while (await fetcher.run_bounded(Bounds(max_records=9, stop_at_tip=True))).reason is EndReason.MAX_RECORDS:
            pass

    run_virtual(job())

    assert [time for _, time in sink.rows] == list(range(100))


def test_stop_lets_the_current_write_return():
    source, sink = ScriptedSource(), RecordingSink(cost=10.0)
    source.add("a", *range(100))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        asyncio.get_running_loop().call_later(5, fetcher.stop)
        result = await fetcher.run()
        return fetcher.snapshot(), result.reason

    snapshot, reason = run_virtual(job())

    assert reason is EndReason.STOPPED
    assert len(sink.rows) == 10
    assert snapshot["shards"]["s/a"]["position"] == "9"


def test_cancelling_run_finishes_the_write_first():
    source, sink = ScriptedSource(), RecordingSink(cost=10.0)
    source.add("a", *range(100))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return fetcher.snapshot()

    assert run_virtual(job())["shards"]["s/a"]["position"] == "9"
    assert len(sink.rows) == 10


def test_a_failed_write_ends_the_run_and_moves_no_position():  # S1
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1, 2, 3)
    sink.failure = OSError("disk full")

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        with pytest.raises(OSError, match="disk full"):
            await fetcher.run()
        return fetcher.snapshot()

    assert "position" not in run_virtual(job())["shards"]["s/a"]


def test_a_fatal_error_of_one_shard_ends_the_run():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1)
    source.failing["s/a"] = FatalKinesisError("GetRecords", "AccessDenied", "no")

    with pytest.raises(FatalKinesisError, match="AccessDenied"):
        run_virtual(read(source, sink))


def test_a_run_ends_when_every_stream_is_deleted():  # S8
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1)

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        source.failing["s/a"] = StreamNotFoundError("s")
        return await fetcher.run()

    assert run_virtual(job()).reason is EndReason.STREAMS_DELETED


def test_a_run_without_shards_waits_for_children_to_come():  # S8
    source, sink = ScriptedSource(), RecordingSink()

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        asyncio.get_running_loop().call_later(100, lambda: source.add("late", 5))
        await fetcher.run_bounded(Bounds(max_records=1))

    run_virtual(job())

    assert sink.rows == [("late", 5)]


def test_shard_limits_are_exact():
    source, sink = ScriptedSource(per_read=7), RecordingSink()
    source.add("a", *range(50))
    source.add("b", *range(50))

    _, result = run_virtual(read(source, sink, Bounds(shard_limits={"s/a": 13, "s/b": 20}, max_time=100)))

    assert result.reason is EndReason.SHARD_LIMITS
    assert result.shards["s/a"].records == 13
    assert result.shards["s/a"].state.position.sequence == "12"
    assert result.shards["s/b"].records == 20


def test_an_event_time_bound_stops_every_shard_before_it():
    source, sink = ScriptedSource(per_read=7), RecordingSink()
    source.add("a", *range(0, 100))
    source.add("b", *range(60, 200))

    _, result = run_virtual(read(source, sink, Bounds(until_event_time=69, max_time=100)))

    assert result.reason is EndReason.EVENT_TIME
    assert [time for shard, time in sink.rows if shard == "b"] == list(range(60, 70))
    assert result.shards["s/a"].seen.next_watermark == 70
    assert result.shards["s/a"].seen.past_event_time
