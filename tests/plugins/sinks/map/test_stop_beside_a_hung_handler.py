"""A job that is stopped ends by itself although a handler does not return, also one that swallows its cancellation."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_store import SubtaskCheckpoints
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.leases.elastic_processes import ElasticProcesses
from fakes.scripted_source import ScriptedSource, make_fetcher
from fakes.snapshots import Snapshots

DRAIN = {"flink.job.drain.timeout": "30s"}


class Kept(Snapshots):
    """Keeps the last snapshot."""

    async def load(self):
        return []

    async def open_generation(self, subtask):
        return 1

    async def store(self, subtask, generation, state):
        self.state = state


async def swallowing(record):
    while int(record.data) == 5:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue
    await asyncio.sleep(1)


def stopped(handler, source, store=None, max_time=None, **properties):
    """Let the handlers of all records begin, stop, or let the time be over, and close. Returns how long the end took."""

    async def story():
        fetcher = make_fetcher(
            source,
            rp.MapSink(handler, concurrency=10, ordering="NONE", clock=VirtualClock()),
            {**DRAIN, **properties},
            checkpoints=None if store is None else SubtaskCheckpoints(store, 0, 1),
        )
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=max_time)))
        await asyncio.sleep(5)
        if max_time is None:
            fetcher.stop()
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(600):
            await running
            await fetcher.close()
        return asyncio.get_running_loop().time() - began

    return run_virtual(story())


@pytest.mark.parametrize("max_time", [None, 5])
@pytest.mark.parametrize("has_store", [True, False])
def test_it_ends_after_the_drain_timeout_and_names_the_handler_and_the_record(caplog, has_store, max_time):
    source, store = ScriptedSource(), Kept()
    source.add("a", *range(10))
    seconds = stopped(swallowing, source, store if has_store else None, max_time)

    assert 30 < seconds < 50, "the drain timeout, and ten seconds for handlers to clean up"
    (line,) = [line for line in caplog.messages if "flink.job.drain.timeout" in line]
    assert "the handler swallowing has run for 3" in line
    assert "with record 5 of s/a" in line
    if has_store:
        assert store.state["shards"]["s/a"]["position"] == "4"


@pytest.mark.parametrize(("seconds", "drain"), [(25, 30), (110, 120)])
def test_what_is_handled_while_it_drains_is_stored(seconds, drain):
    async def slow_before_a_hung_one(record):
        await asyncio.sleep({4: seconds, 5: 1e6}.get(int(record.data), 0))

    source, store = ScriptedSource(), Kept()
    source.add("a", *range(10))
    stopped(slow_before_a_hung_one, source, store, **{"flink.job.drain.timeout": f"{drain}s"})
    assert store.state["shards"]["s/a"]["position"] == "4"


def test_handlers_that_go_on_returning_are_waited_for(caplog):
    async def slow(record):
        await asyncio.sleep(20 + 10 * int(record.data))

    source, store = ScriptedSource(), Kept()
    source.add("a", *range(10))
    assert stopped(slow, source, store) > 100
    assert store.state["shards"]["s/a"]["position"] == "9"
    assert "flink.job.drain.timeout" not in caplog.text


def test_a_worker_of_a_group_ends_too(caplog):
    async def story():
        group = ElasticProcesses(shards=1)
        sink = rp.MapSink(swallowing, concurrency=10, ordering="NONE", clock=VirtualClock())
        process = await group.join(sink=sink, **DRAIN)
        group.send(10)
        await asyncio.sleep(60)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(600):
            await process.stop()
        return asyncio.get_running_loop().time() - began

    assert run_virtual(story()) < 60
    assert "with record 5 of s/shard-0" in caplog.text


def test_a_worker_of_a_group_leaves_it_too_and_the_next_one_reads_at_once_what_was_not_handled(caplog):
    async def story():
        group, now = ElasticProcesses(shards=1), asyncio.get_running_loop().time
        sink = rp.MapSink(swallowing, concurrency=10, ordering="NONE", clock=VirtualClock())
        first = await group.join(sink=sink, **DRAIN)
        group.send(10)
        await asyncio.sleep(60)
        await first.stop()
        began, second = now(), await group.join()
        await group.wait_until(lambda: len(second.sink.rows) == 5)
        return now() - began, [row[1] for row in second.sink.rows]

    caplog.set_level("INFO")
    seconds, rows = run_virtual(story())
    assert seconds < 5, "not a lease duration"
    assert rows == [5, 6, 7, 8, 9]
    assert "has left its group" in caplog.text
