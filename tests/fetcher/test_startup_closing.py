"""Edge cases of opening and closing: stopped while waiting, closed before it was opened, parts that fail to close."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, fetcher_dependencies, make_fetcher


class Closing:
    """Counts what was closed; `failing` parts raise."""

    def __init__(self, failing=()):
        self.closed = []
        self._failing = failing

    def watch(self, part, name):
        async def close():
            self.closed.append(name)
            if name in self._failing:
                raise OSError(f"{name} cannot be closed")

        part.close = close
        return part


def test_a_stop_ends_a_wait_for_the_next_listing():
    source, sink = ScriptedSource(), RecordingSink()

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.shard.discovery.intervalmillis": 10_000_000})
        await fetcher.open()
        asyncio.get_running_loop().call_later(5, fetcher.stop)
        result = await fetcher.run()
        return result.reason, asyncio.get_running_loop().time()

    assert run_virtual(job()) == (EndReason.STOPPED, 5)


def test_every_part_is_closed_although_one_fails_to_close():
    source, sink = ScriptedSource(), RecordingSink()
    closing = Closing(failing=("factory",))
    parts = fetcher_dependencies(closing.watch(source, "factory"), closing.watch(sink, "sink"))

    async def job():
        fetcher = build_fetcher(parts)
        await fetcher.open()
        with pytest.raises(OSError, match="factory cannot be closed"):
            await fetcher.close()

    run_virtual(job())

    assert sorted(closing.closed) == ["factory", "sink"]


def test_a_fetcher_can_be_closed_before_it_was_opened():
    closing = Closing()
    parts = fetcher_dependencies(closing.watch(ScriptedSource(), "factory"), RecordingSink())

    async def job():
        await build_fetcher(parts).close()

    run_virtual(job())

    assert closing.closed == ["factory"]


def test_before_the_shards_are_listed_there_is_no_snapshot():
    """An empty one would replace a complete one. The connector writes the restored state again instead."""

    async def job():
        make_fetcher(ScriptedSource(), RecordingSink()).snapshot()

    with pytest.raises(StateError, match="not open"):
        run_virtual(job())


def test_a_snapshot_after_closing_is_the_last_one():
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(25))

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_records=13))
        stopped = fetcher.snapshot()
        await fetcher.close()
        source.shards["s/a"].put(99)
        return stopped, fetcher.snapshot()

    stopped, closed = run_virtual(job())

    assert stopped == closed
    assert stopped["shards"]["s/a"]["position"] == "12"
