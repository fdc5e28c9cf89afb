"""What a whole fetcher does when streams, sinks or state go away."""

import asyncio
from contextlib import suppress

import pytest

from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import FunctionTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.publishers.errors import (
    DataLossError,
    PluginError,
    StateError,
    StreamNotFoundError,
)
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import OldestRecord
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


async def opened(source, sink, properties=None, **parts):
    fetcher = make_fetcher(source, sink, properties, **parts)
    await fetcher.open()
    return fetcher


def test_the_shards_of_a_deleted_stream_hold_no_watermark():  # S8, W9
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(0, 100_000, 1_000))
    source.add("gone", 0, stream="t")

    async def job():
        given = {"flink.watermark.lookahead.millis": 1_000}
        fetcher = await opened(source, sink, given, streams=("s", "t"))
        asyncio.get_running_loop().call_later(5, source.deleted.add, "t")
        await fetcher.run_bounded(Bounds(max_time=60))
        return fetcher.snapshot()

    assert set(run_virtual(job())["shards"]) == {"s/a"}
    assert sink.rows.count(("gone", 0)) == 1
    assert len(sink.rows) == 101


def made_again(streams):
    """A stream is deleted, and made again with a shard of the same name: what was written, and the positions."""
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", EPOCH_MS)
    source.add("a", EPOCH_MS, stream="t")
    source.add("b", stream="t")

    def make():
        source.add("a", EPOCH_MS + 1, EPOCH_MS + 2, stream="t")
        source.deleted.clear()

    async def job():
        fetcher = await opened(source, sink, {"flink.shard.discovery.intervalmillis": 1_000}, streams=streams)
        asyncio.get_running_loop().call_later(5, source.deleted.add, "t")
        asyncio.get_running_loop().call_later(20, make)
        await fetcher.run_bounded(Bounds(max_time=30))
        return fetcher.snapshot()

    return sink.rows, run_virtual(job())["shards"]


@pytest.mark.parametrize("may_change", [False, True])
def test_a_stream_that_is_deleted_and_made_again_is_read_from_its_beginning(may_change):  # S8, S10
    async def look():
        return ("s", "t")

    rows, shards = made_again(StreamList(("s", "t"), look, 1.0) if may_change else ("s", "t"))

    assert sorted(rows) == [("a", EPOCH_MS), ("a", EPOCH_MS), ("a", EPOCH_MS + 1), ("a", EPOCH_MS + 2)]
    assert shards["t/a"]["position"] == "1"


def test_an_expired_parent_leaves_state_and_metrics():  # S5, A1
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1)
    source.split("a", "b")
    source.shards["s/b"].put(2)

    async def job():
        fetcher = await opened(source, sink)
        loop = asyncio.get_running_loop()
        loop.call_later(15, source.shards.pop, "s/a")
        await fetcher.run_bounded(Bounds(max_time=12))
        before = set(fetcher.snapshot()["shards"]), set(fetcher.metrics()["shards"])
        await fetcher.run_bounded(Bounds(max_time=30))
        return before, (set(fetcher.snapshot()["shards"]), set(fetcher.metrics()["shards"]))

    both, child = {"s/a", "s/b"}, {"s/b"}
    assert run_virtual(job()) == ((both, both), (child, child))
    assert sorted(sink.rows) == [("a", 1), ("b", 2)]


async def opened_late(source, sink, properties=None, **parts):
    """As `opened`, a day and an hour later: a day is what the stream keeps, and there is a later record."""

    async def day(stream):
        return EPOCH_MS + 3_600_000

    async def later(shard):
        return OldestRecord("9", EPOCH_MS + 7_200_000)

    await asyncio.sleep(25 * 3_600)
    retention = RetentionCheck(day, later, source.order_of, VirtualClock())
    return await opened(source, sink, properties, retention=retention, **parts)


def test_a_position_past_retention_fails_with_the_gap_named():  # S5
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1, 2)

    async def state():
        fetcher = await opened(source, sink)
        await fetcher.run_bounded(Bounds(max_records=2))
        return fetcher.snapshot()

    kept = run_virtual(state())

    with pytest.raises(DataLossError, match="s/a after 1"):
        run_virtual(opened_late(source, sink, restore=(kept,)))
    run_virtual(opened_late(source, sink, {"flink.state.dataloss": "CONTINUE"}, restore=(kept,)))


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_listing_older_than_the_state_is_repeated(is_closed):
    """ListShards is eventually consistent: what it does not show yet is neither lost nor new (S5)."""
    source, sink = ScriptedSource(), RecordingSink()
    old, young = "shardId-000000000000", "shardId-000000000001"
    source.add(old, 1)
    source.split(old, young)
    source.shards[f"s/{young}"].put(2)
    if is_closed:
        source.close_shard(young)

    async def state():
        fetcher = await opened(source, sink)
        await fetcher.run_bounded(Bounds(max_time=5))
        return fetcher.snapshot()

    kept, list_shards, listings = run_virtual(state()), source.list_shards, []

    async def listing(stream):
        listings.append(stream)
        listed = await list_shards(stream)
        return listed if len(listings) > 2 else listed[:1]

    async def again():
        source.list_shards = listing
        fetcher = await opened(source, sink, restore=(kept,))
        await fetcher.run_bounded(Bounds(max_time=5))

    run_virtual(again())
    assert len(listings) == 3
    assert sink.rows == [(old, 1), (young, 2)]


def test_a_tip_seen_in_time_is_no_gap():  # S5
    source, sink = ScriptedSource(latency=5.0), RecordingSink()
    source.add("a", 1, 2)

    async def state():
        fetcher = await opened(source, sink)
        await fetcher.run_bounded(Bounds(max_time=4_000))
        return fetcher.snapshot()

    kept = run_virtual(state())

    run_virtual(opened_late(source, sink, restore=(kept,)))
    assert kept["shards"]["s/a"]["tipMs"] > EPOCH_MS + 3_900_000


def test_a_sink_that_lets_a_cancellation_escape_ends_the_run():
    class Cancelled(RecordingSink):
        async def write(self, batch):
            raise asyncio.CancelledError

    source = ScriptedSource()
    source.add("a", 1)

    async def job():
        await (await opened(source, Cancelled())).run_bounded(Bounds(max_time=100))

    with pytest.raises(PluginError, match=r"`Cancelled\.write` for s/a raised CancelledError"):
        run_virtual(job())


def test_stopping_cancels_no_watermark_and_no_flush():
    class Slow(RecordingSink):
        cut = 0

        async def _slowly(self):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                self.cut += 1
                raise

        async def watermark(self, watermark):
            await self._slowly()

        async def flush(self, checkpoint=None):
            await self._slowly()

    source, sink = ScriptedSource(), Slow()
    source.add("a", *range(100))

    async def job():
        fetcher = await opened(source, sink)
        return await fetcher.run_bounded(Bounds(max_time=75))

    assert run_virtual(job()).reason is EndReason.MAX_TIME
    assert sink.cut == 0


def test_without_a_store_the_sink_gets_checkpoints_too():  # S6: a sink that stores the state with its rows
    source, sink = ScriptedSource(per_read=1, latency=1.0), RecordingSink()
    source.add("a", *range(100))

    async def job():
        fetcher = await opened(source, sink)
        await fetcher.run_bounded(Bounds(max_time=25))

    run_virtual(job())

    before_the_first_read, *flushed = [each.state["shards"]["s/a"] for each in sink.flushed]
    assert "position" not in before_the_first_read  # P3: the pinned start is stored
    positions = [int(each["position"]) for each in flushed]
    assert len(positions) == 3
    assert positions == sorted(positions)


def test_the_state_in_the_sink_takes_precedence_for_its_own_shards():  # S5
    class Storing(RecordingSink):
        async def open(self, context):
            return {"version": 2, "generation": 1, "shards": {"s/a": {"start": "TRIM_HORIZON", "position": "2"}}}

    source, sink = ScriptedSource(), Storing()
    source.add("a", *range(5))
    source.add("b", *range(5))
    both = {key: {"start": "TRIM_HORIZON", "position": "0"} for key in ("s/a", "s/b")}

    async def job():
        fetcher = await opened(source, sink, restore=({"version": 2, "generation": 5, "shards": both},))
        await fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=10))

    run_virtual(job())

    assert sorted(sink.rows) == [("a", 3), ("a", 4), ("b", 1), ("b", 2), ("b", 3), ("b", 4)]


def test_children_that_came_and_went_unread_are_data_loss():  # S5
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 1, 2)
    source.split("a", "b")
    source.split("b", "c")

    async def state():
        fetcher = await opened(source, sink)
        await fetcher.run_bounded(Bounds(max_time=10))
        return fetcher.snapshot()

    kept = run_virtual(state())
    kept["shards"] = {"s/a": kept["shards"]["s/a"]}  # taken before the child was discovered
    del source.shards["s/a"], source.shards["s/b"]

    with pytest.raises(DataLossError, match="s/a after 1"):
        run_virtual(opened_late(source, sink, restore=(kept,)))
    run_virtual(opened_late(source, sink, {"flink.state.dataloss": "CONTINUE"}, restore=(kept,)))


def test_what_is_being_written_when_its_stream_is_deleted_is_counted():  # S1, S8
    async def job():
        source = ScriptedSource()
        source.add("a", 1, 2, 3)
        fetcher = make_fetcher(source, RecordingSink(cost=5))
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(1)
        source.failing["s/a"] = StreamNotFoundError("s")
        result = await running
        await fetcher.close()
        return result.reason, result.records

    assert run_virtual(job()) == (EndReason.STREAMS_DELETED, 3)


def test_what_was_read_is_written_before_a_run_ends_whose_only_stream_was_deleted():  # S8
    """No later start can read these records again."""
    source, sink = ScriptedSource(per_read=10), RecordingSink(cost=1)
    source.add("a", *range(50))

    async def job():
        fetcher = await opened(source, sink)
        asyncio.get_running_loop().call_later(3, source.deleted.add, "s")
        return await fetcher.run()

    assert run_virtual(job()).reason is EndReason.STREAMS_DELETED
    assert len(sink.rows) == 50
    assert sink.watermarks[-1] == 49, "of the last row, as at the end of every shard"


def test_a_dead_letter_that_waits_when_its_stream_is_deleted_is_written():  # S7, S8
    def decorator(shard, metrics):
        def time(record):
            return 1 // int(record.data)  # a record without a time

        strategy = BoundedOutOfOrderness(Properties({}))
        poison = OnBadRecord.DEAD_LETTER
        times = FunctionTimestamps(time)
        return BatchDecorator(BytesDeserializer(), times, strategy, metrics, on_poison=poison, future_limit_ms=-1)

    async def job():
        source, letters = ScriptedSource(), RecordingSink()
        source.add("a", 1)
        source.add("b", stream="t")
        parts = {"decorator_for": decorator, "dead_letters": letters, "streams": ("s", "t")}
        fetcher = await opened(source, RecordingSink(cost=10), **parts)
        loop = asyncio.get_running_loop()
        loop.call_later(2, source.shards["t/b"].put, 0)  # while the record of the other stream is written
        loop.call_later(5, source.deleted.add, "t")
        await fetcher.run_bounded(Bounds(max_time=30))
        return letters.rows

    assert run_virtual(job()) == [("b", 0)]


class SlowWrites(RecordingSink):
    """Each write takes 5 s."""

    writing = 0

    async def write(self, batch):
        self.writing += 1
        await asyncio.sleep(5)
        await super().write(batch)
        self.writing -= 1


async def cancelled_while_it_ends(cancels, sink):
    """Run a job whose first write goes on when `max_time` ends the run, and cancel this run. Return the fetcher."""
    source = ScriptedSource()
    source.add("a", *range(10))
    fetcher = await opened(source, sink)
    running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=2)))
    await asyncio.sleep(3)
    for _ in range(cancels):
        running.cancel()
        await asyncio.sleep(0.1)
    await asyncio.wait([running])
    assert running.cancelled()
    return fetcher


def test_a_run_that_is_cancelled_while_it_ends_leaves_no_write_to_the_next_run():
    sink = SlowWrites()

    async def job():
        fetcher = await cancelled_while_it_ends(1, sink)
        assert sink.writing == 0
        await fetcher.run_bounded(Bounds(max_time=60))

    run_virtual(job())
    assert sink.rows == [("a", number) for number in range(10)]


def test_after_two_cancellations_the_next_run_is_refused_until_the_write_has_ended():
    sink = SlowWrites()

    async def job():
        fetcher = await cancelled_while_it_ends(2, sink)
        assert sink.writing == 1
        with pytest.raises(StateError, match="cancelled twice"):
            await fetcher.run_bounded(Bounds(max_time=60))
        await asyncio.sleep(5)
        await fetcher.run_bounded(Bounds(max_time=60))

    run_virtual(job())
    assert sink.rows == [("a", number) for number in range(10)]


def test_the_second_cancellation_ends_a_run_also_before_it_waits_for_its_write():
    class HangingWrites(RecordingSink):
        async def write(self, batch):
            await asyncio.sleep(10_000)

    async def look():
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(200)

    async def job():
        source = ScriptedSource()
        source.add("a", 0)
        fetcher = await opened(source, HangingWrites(), streams=StreamList(("s",), look, 0.5))
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(3)
        for _ in range(2):  # The run waits for `look` during both.
            running.cancel()
            await asyncio.sleep(0.1)
        await asyncio.wait([running], timeout=100)
        return running.cancelled()

    assert run_virtual(job())
