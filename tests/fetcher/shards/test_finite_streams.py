"""S8: a run ends when its source lists every shard as closed, and each was read to its end, whenever it was closed."""

import asyncio
from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import RetriesExhaustedError
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

CLOSED_AT, A_MINUTE = 25, 60.0


class FiniteSource(ScriptedSource):
    """Lists its shards, and shows which are closed. A listing raises while `is_down`."""

    is_down = False

    async def list_shards(self, stream):
        if self.is_down:
            raise RetriesExhaustedError("the listing does not answer")
        return [replace(shard, closed=self.shards[shard.key].closed) for shard in await super().list_shards(stream)]

    async def discover(self, stream):
        return await self.list_shards(stream)


def run(source, change, **parts):
    """Run for a minute, and change the source after 25 s, which is after two listings. Return why and when the run ended, and the rows."""
    sink = RecordingSink()

    async def job():
        fetcher = make_fetcher(source, sink, **parts)
        await fetcher.open()
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_at(began + CLOSED_AT, change)
        ended = await fetcher.run_bounded(Bounds(max_time=A_MINUTE))
        seconds = loop.time() - began
        await fetcher.close()
        return ended.reason, seconds

    return *run_virtual(job()), sink.rows


@pytest.fixture
def source():
    source = FiniteSource()
    source.add("a", EPOCH_MS)
    source.add("b", EPOCH_MS)
    return source


def close(source, *shard_ids):
    for shard_id in shard_ids:
        source.close_shard(shard_id)


def test_a_run_ends_when_its_last_shards_are_closed_while_it_runs(source):
    def change():
        source.shards["s/a"].put(EPOCH_MS + 1)
        close(source, "a", "b")

    reason, seconds, rows = run(source, change)

    assert reason is EndReason.ALL_ENDED
    assert CLOSED_AT < seconds < CLOSED_AT + 11, "the next listing shows it"
    assert ("a", EPOCH_MS + 1) in rows


def test_a_run_continues_while_a_shard_is_open(source):
    assert run(source, lambda: close(source, "a"))[0] is EndReason.MAX_TIME


def test_a_run_continues_with_the_children_of_the_last_shards(source):
    def change():
        close(source, "b")
        source.split("a", "c")
        source.shards["s/c"].put(EPOCH_MS + 1)

    reason, _, rows = run(source, change)

    assert reason is EndReason.MAX_TIME
    assert ("c", EPOCH_MS + 1) in rows


def test_an_outage_of_the_listing_proves_no_end(source):
    source.ends_open_shards = True  # Otherwise the ends of the shards wait for the listing, too.

    def change():
        close(source, "a", "b")
        source.is_down = True

    assert run(source, change)[0] is EndReason.MAX_TIME


def test_a_stream_that_always_has_an_open_shard_does_not_end(source):
    change = lambda: close(source, "a", "b")  # noqa: E731

    assert run(source, change, is_endless=lambda stream: True)[0] is EndReason.MAX_TIME


def test_a_stream_without_shards_may_get_some(source):
    assert run(source, lambda: close(source, "a", "b"), streams=("s", "empty"))[0] is EndReason.MAX_TIME


def test_a_list_that_may_change_may_get_another_stream(source):
    async def look():
        return ["s"]

    streams = StreamList(["s"], look)

    assert run(source, lambda: close(source, "a", "b"), streams=streams)[0] is EndReason.MAX_TIME
