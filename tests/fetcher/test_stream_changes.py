"""S10: streams come into the list and leave it while the job runs."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing.virtual_time import EPOCH_MS

from fakes.changing_streams import LOOK, Listed, job, two_streams
from fakes.kept_snapshots import KeptSnapshots
from fakes.scripted_source import RecordingSink, ScriptedSource

IDLE = {"flink.shard.idle.interval": 3_000}


def test_a_stream_that_comes_into_the_list_is_read_from_its_start():
    source, listed, sink = two_streams(10, 20), Listed("s"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(LOOK + 2)
        assert sink.rows == [("a", 1), ("a", 2)]
        listed.names = ("s", "t")
        await asyncio.sleep(LOOK + 2)

    job(source, listed, story, sink)
    assert sink.rows == [("a", 1), ("a", 2), ("b", 10), ("b", 20)]


def test_latest_is_the_moment_of_the_first_start_for_every_stream():
    source, listed = two_streams(), Listed("s")
    source.missing = {"t"}
    created = []

    async def create(shard, position, metrics):
        created.append((shard.key, position))
        return await ScriptedSource.create(source, shard, StartingPosition.trim_horizon(), metrics)

    source.create = create

    async def story(fetcher):
        await asyncio.sleep(1)
        listed.names = ("s", "t")
        await asyncio.sleep(LOOK)
        source.missing = set()
        await asyncio.sleep(LOOK)

    often = {"flink.shard.discovery.intervalmillis": 1_000}
    job(source, listed, story, properties=often, starts=Starts(StartingPosition.latest()))
    pinned = StartingPosition.at_timestamp(EPOCH_MS)
    assert created == [("s/a", pinned), ("t/b", pinned)]


def test_a_stream_that_does_not_exist_yet_is_looked_for_again_and_warned_of_once(caplog):
    source, listed, sink = two_streams(10), Listed("s", "t"), RecordingSink()
    source.missing = {"t"}

    async def story(fetcher):
        await asyncio.sleep(4 * LOOK)
        source.missing = set()
        await asyncio.sleep(2 * LOOK)

    job(source, listed, story, sink)
    assert ("b", 10) in sink.rows
    assert sum("stream 't' does not exist" in each.message for each in caplog.records) == 1
    assert "was deleted" not in caplog.text


def test_a_new_stream_that_cannot_be_listed_is_warned_of_once_for_each_reason(caplog):
    source, listed, sink = two_streams(10), Listed("s"), RecordingSink()
    source.missing = {"t"}

    async def story(fetcher):
        listed.names = ("s", "t")
        await asyncio.sleep(4 * LOOK)
        source.missing = set()
        await asyncio.sleep(2 * LOOK)

    job(source, listed, story, sink)
    assert ("b", 10) in sink.rows
    assert sum("stream 't' does not exist" in each.message for each in caplog.records) == 1


def test_of_a_list_without_any_stream_that_exists_the_job_does_not_start():
    source, listed = two_streams(), Listed("s", "t")
    source.missing = {"s", "t"}
    with pytest.raises(StreamNotFoundError):
        job(source, listed, None)


def test_a_stream_that_leaves_the_list_is_read_no_more_and_its_position_stays_in_every_snapshot():
    source, listed, sink = two_streams(10, 20), Listed("s", "t"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(LOOK)
        source.shards["t/b"].put(30)
        await asyncio.sleep(LOOK)
        assert list(fetcher.metrics()["shards"]) == ["s/a"]

    fetcher = job(source, listed, story, sink)
    assert ("b", 30) not in sink.rows
    assert fetcher.snapshot()["shards"]["t/b"]["position"] == "1"
    assert source.released == ["t"]


def test_a_listing_that_was_under_way_when_its_stream_left_is_not_used():
    source, listed = two_streams(10), Listed("s", "t")
    list_shards = source.list_shards

    async def list_slowly(stream):
        await asyncio.sleep(2.5 if stream == "t" else 0)
        return await list_shards(stream)

    async def story(fetcher):
        source.list_shards = list_slowly
        listed.names = ("s",)
        await asyncio.sleep(2 * LOOK)
        assert list(fetcher.metrics()["shards"]) == ["s/a"]

    job(source, listed, story, properties={"flink.shard.discovery.intervalmillis": 1_000})


def test_where_a_stream_stopped_is_stored_at_once():
    source, listed, store = two_streams(10, 20), Listed("s", "t"), KeptSnapshots()

    async def story(fetcher):
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(LOOK)
        assert store.kept[-1]["shards"]["t/b"]["position"] == "1"

    never = {"flink.state.checkpoint.interval": -1}
    job(source, listed, story, properties=never, alone=store.start())


def test_a_stream_that_comes_back_goes_on_where_it_stopped():
    source, listed, sink = two_streams(10, 20), Listed("s", "t"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(LOOK)
        source.shards["t/b"].put(30)
        source.split("b", "c", "d", stream="t")
        source.shards["t/c"].put(40)
        listed.names = ("s", "t")
        await asyncio.sleep(2 * LOOK)

    fetcher = job(source, listed, story, sink)
    assert [row for row in sink.rows if row[0] != "a"] == [("b", 10), ("b", 20), ("b", 30), ("c", 40)]
    assert fetcher.snapshot()["shards"]["t/b"]["ended"]


def test_a_stream_that_was_left_out_at_a_restart_comes_back_where_it_stopped():
    source, listed, sink, store = two_streams(10, 20), Listed("s", "t"), RecordingSink(), KeptSnapshots()

    async def until_read(fetcher):
        await asyncio.sleep(3)

    job(source, listed, until_read, sink, alone=store.start())
    source.shards["t/b"].put(30)
    listed.names = ("s",)

    async def comes_back(fetcher):
        await asyncio.sleep(3)
        assert ("b", 30) not in sink.rows
        listed.names = ("s", "t")
        await asyncio.sleep(2 * LOOK)

    job(source, listed, comes_back, sink, alone=store.start())
    assert [row for row in sink.rows if row[0] == "b"] == [("b", 10), ("b", 20), ("b", 30)]


def test_the_end_of_a_shard_is_confirmed_again_after_a_restart_without_its_stream():
    """S2: a worker that has a child of it may have missed the end."""
    source, listed, store = two_streams(10), Listed("s", "t"), KeptSnapshots()

    async def until_ended(fetcher):
        await asyncio.sleep(1)
        source.split("b", "c", stream="t")
        await asyncio.sleep(5)

    job(source, listed, until_ended, alone=store.start())
    listed.names = ("s",)

    async def comes_back(fetcher):
        await asyncio.sleep(3)
        listed.names = ("s", "t")
        await asyncio.sleep(2 * LOOK)

    fetcher = job(source, listed, comes_back, alone=store.start())
    assert fetcher.snapshot()["shards"]["t/b"]["ended"]


def test_a_write_that_goes_on_while_its_stream_leaves_is_counted_in_the_position():
    source, listed, sink = two_streams(10, 20), Listed("s", "t"), RecordingSink(cost=3 * LOOK)
    source.shards["s/a"].times.clear()

    async def story(fetcher):
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(10 * LOOK)
        listed.names = ("s", "t")
        await asyncio.sleep(10 * LOOK)

    job(source, listed, story, sink)
    assert sink.rows == [("b", 10), ("b", 20)]


def test_a_stream_that_left_holds_no_watermark():
    source, listed, sink = two_streams(1), Listed("s", "t"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(2)
        source.shards["s/a"].put(5_000)
        await asyncio.sleep(2)
        assert sink.watermarks[-1] < 5_000
        listed.names = ("s",)
        await asyncio.sleep(LOOK + 1)

    job(source, listed, story, sink, {"flink.shard.idle.interval": -1})
    assert sink.watermarks[-1] == 5_000


def test_a_new_stream_with_old_records_moves_no_watermark_back():
    source, listed, sink = two_streams(10, 20), Listed("s"), RecordingSink()
    source.shards["s/a"].put(5_000)

    async def story(fetcher):
        await asyncio.sleep(3)
        assert sink.watermarks[-1] == 5_000
        listed.names = ("s", "t")
        await asyncio.sleep(2 * LOOK)
        source.shards["s/a"].put(6_000)
        source.shards["t/b"].put(7_000)
        await asyncio.sleep(3)

    job(source, listed, story, sink, {"flink.shard.idle.interval": -1})
    assert ("b", 10) in sink.rows
    assert sink.watermarks == sorted(sink.watermarks)
    assert sink.watermarks[-1] == 6_000


def test_a_deleted_stream_that_leaves_and_comes_back_is_a_new_one():
    source, listed, sink = two_streams(10), Listed("s", "t"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(2)
        source.split("b", "c", stream="t")
        await asyncio.sleep(2)
        del source.shards["t/b"]  # past retention
        await asyncio.sleep(15)
        source.failing["t/c"] = StreamNotFoundError("t")
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(2 * LOOK)
        source.failing.clear()
        del source.shards["t/c"]
        source.add("b", 100, 200, stream="t")
        listed.names = ("s", "t")
        await asyncio.sleep(2 * LOOK)

    job(source, listed, story, sink)
    assert [row for row in sink.rows if row[0] == "b"] == [("b", 10), ("b", 100), ("b", 200)]


def test_the_deletion_of_every_stream_ends_no_job_whose_list_may_change():
    source, listed, sink = two_streams(10), Listed("t"), RecordingSink()

    async def story(fetcher):
        await asyncio.sleep(2)
        source.failing["t/b"] = StreamNotFoundError("t")
        await asyncio.sleep(2)
        listed.names = ("s",)
        await asyncio.sleep(2 * LOOK)

    job(source, listed, story, sink)
    assert sink.rows == [("b", 10), ("a", 1), ("a", 2)]


def test_p6_the_memory_reserved_for_shards_of_deleted_streams_is_free_again():
    source, listed, used = two_streams(*range(10, 5_000)), Listed("s", "t"), []
    source.per_read = 1

    async def story(fetcher):
        for _ in range(3):
            await asyncio.sleep(LOOK + 3)
            source.deleted.add("t")
            await asyncio.sleep(3)
            worker = fetcher.metrics()
            used.append((list(worker["shards"]), worker["worker"]["budgetUsedBytes"]))
            source.deleted.discard("t")

    job(source, listed, story)
    assert used == [(["s/a"], 0)] * 3


OFTEN = {"flink.shard.discovery.intervalmillis": 1_000}


def test_s5_a_restart_reports_no_loss_of_a_shard_that_was_read_after_its_stream_came_into_the_list():
    """Its stored position was kept while the stream was not read, and must not come back when the shard was read to its end."""
    source, listed, snapshots = two_streams(10, 20, 30), Listed("s", "t"), []

    async def short(fetcher):
        await asyncio.sleep(3)
        snapshots.append(fetcher.snapshot())

    async def with_a_reshard(fetcher):
        listed.names = ("s", "t")
        await asyncio.sleep(LOOK + 5)
        source.shards["t/b"].put(40)
        source.split("b", "d", stream="t")
        await asyncio.sleep(10)
        del source.shards["t/b"]
        await short(fetcher)

    job(source, listed, short, properties=OFTEN)
    listed.names = ("s",)
    job(source, listed, with_a_reshard, properties=OFTEN, restore=[snapshots[0]])
    job(source, listed, short, properties=OFTEN, restore=[snapshots[1]])
    assert [sorted(each["shards"]) for each in snapshots] == [["s/a", "t/b"], ["s/a", "t/d"], ["s/a", "t/d"]]


def test_s5_the_kept_position_of_a_shard_that_listings_lacked_for_a_while_does_not_come_back():
    source, listed, sink = two_streams(10, 20), Listed("s", "t"), RecordingSink()
    source.add("c", 11, stream="t")

    async def story(fetcher):
        await asyncio.sleep(3)
        listed.names = ("s",)
        await asyncio.sleep(LOOK)
        source.unlisted.add("t/b")
        listed.names = ("s", "t")
        await asyncio.sleep(LOOK + 30)
        source.unlisted.clear()
        await asyncio.sleep(5)
        source.shards["t/b"].put(40)
        source.split("b", "d", stream="t")
        await asyncio.sleep(10)
        del source.shards["t/b"]
        await asyncio.sleep(10)
        assert sorted(fetcher.snapshot()["shards"]) == ["s/a", "t/c", "t/d"]

    job(source, listed, story, sink, properties=OFTEN)
    assert [time for shard, time in sink.rows if shard == "b"] == [10, 20, 40]
