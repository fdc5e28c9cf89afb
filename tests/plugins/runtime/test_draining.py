"""A drain that waits says for what: the sink, or a publisher that does not end."""

import asyncio
import re
from contextlib import suppress

import recordpublisher as rp
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.local import in_memory
from recordpublisher.plugins.runtime.stop_signals import tell_what_drains
from recordpublisher.publishers.base import RunResult
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedPublisher, ScriptedSource, make_fetcher


def told(caplog, seconds, *publishers):
    async def drain():
        left = Unfinished(7, "records not handled: 7")
        telling = asyncio.create_task(tell_what_drains("map", lambda: left, lambda: publishers))
        await asyncio.sleep(seconds)
        telling.cancel()

    run_virtual(drain())
    return caplog.messages


def test_a_drain_that_waits_says_for_what_and_how_to_end_it(caplog):
    first, second = told(caplog, 25)

    assert first.startswith(
        "the job has been draining for 10 s: it waits for the sink 'map' (records not handled: 7). "
    )
    assert "a second signal ends" in first
    assert "draining for 20 s" in second


def test_publishers_that_do_not_end_are_named_and_not_the_sink(caplog):
    (line,) = told(caplog, 15, "the publisher of A for s/a, which waits at a.py:5 (run)")

    assert "it waits for the publisher of A for s/a, which waits at a.py:5 (run). `run` of a publisher must end" in line
    assert "sink" not in line


class Stubborn(ScriptedPublisher):
    """Ends only after a while, whatever is cancelled."""

    async def run(self, consumer):
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return RunResult.CANCELLED


class StubbornSource(ScriptedSource):
    async def create(self, shard, starting_position, metrics):
        return Stubborn(self, self.shards[shard.key], starting_position)


def test_a_publisher_that_swallows_its_cancellation_is_known_with_its_line():
    async def main():
        source = StubbornSource()
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        before = fetcher.hung_publishers()
        fetcher.stop()
        await asyncio.sleep(5)
        hung = fetcher.hung_publishers()
        await running
        return before, hung, fetcher.hung_publishers()

    before, (hung,), after = run_virtual(main())
    assert before == after == []
    assert re.fullmatch(
        r"the publisher of StubbornSource for s/a, which waits at \S+test_draining\.py:\d+ \(run\)", hung
    )


class StuckSink(rp.MemorySink):
    """Its writes hang for a while."""

    async def write(self, batch):
        await asyncio.sleep(18)


def test_the_stop_of_a_program_of_ones_own_says_what_it_waits_for(caplog):
    async def main():
        with in_memory({"orders": 1}, clock=VirtualClock()) as account:
            account.find("orders").put(b"1", "key")
            async with rp.DataFetcher(
                "orders", region="eu-west-1", sink=StuckSink(), start="TRIM_HORIZON", clock=VirtualClock()
            ) as fetcher:
                running = asyncio.create_task(fetcher.run())
                await asyncio.sleep(5)
                fetcher.stop()
                await running

    run_virtual(main())
    (line,) = [text for text in caplog.messages if "has been draining" in text]
    assert "it waits for the sink 'StuckSink' (a call that runs" in line
