"""A worker is ready while it reads, its checkpoints are stored, and no newer start has fenced it off."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.publishers.errors import FatalKinesisError, FencedError, TransientError
from recordpublisher.testing import VirtualClock
from recordpublisher.testing.virtual_time import run_virtual

from fakes.commits.committing_sink import Start, Table, TableSink
from fakes.kept_snapshots import KeptSnapshots
from fakes.memory_store import MemoryStore
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

NOT_STARTED = ["this worker does not read: it has not started yet"]
ENDED = ["this worker does not read: it is draining or has ended"]
NOT_READ_YET = ["no shard was read yet"]


class StuckSink(RecordingSink):
    """Its flush does not return while it is stuck."""

    def __init__(self):
        super().__init__()
        self.works = asyncio.Event()
        self.works.set()

    async def flush(self, checkpoint=None):
        await self.works.wait()


class FencingStore(KeptSnapshots):
    """A newer start owns the state from the second checkpoint on."""

    async def write(self, epoch, state):
        await super().write(epoch, state)
        if len(self.kept) > 1:
            raise FencedError("another start owns the state")


@asynccontextmanager
async def running(source, sink, **more):
    fetcher = make_fetcher(source, sink, {"flink.state.checkpoint.interval": 1000}, **more)
    await fetcher.open()
    run = asyncio.create_task(fetcher.run())
    await asyncio.sleep(2)
    yield fetcher, run
    fetcher.stop()
    await asyncio.gather(run, return_exceptions=True)
    await fetcher.close()


def source_of(*shards, latency=0.2):
    source = ScriptedSource(latency=latency)
    for shard in shards:
        source.add(shard, 1)
    return source


def test_it_is_ready_while_it_reads_and_at_no_other_time():
    async def run():
        before = make_fetcher(source_of("a"), RecordingSink()).reasons_not_ready()
        async with running(source_of("a"), RecordingSink()) as (fetcher, _):
            await asyncio.sleep(500)
            during = fetcher.reasons_not_ready()
        return before, during, fetcher.reasons_not_ready()

    assert run_virtual(run()) == (NOT_STARTED, [], ENDED)


def test_it_is_not_ready_before_its_first_read():
    async def run():
        async with running(source_of("a", latency=10), RecordingSink()) as (fetcher, _):
            before = fetcher.reasons_not_ready()
            await asyncio.sleep(10)
            return before, fetcher.reasons_not_ready()

    assert run_virtual(run()) == (NOT_READ_YET, [])


def test_it_stays_ready_when_the_children_of_its_only_shard_begin():
    async def run():
        source = source_of("a", latency=0.5)
        async with running(source, RecordingSink()) as (fetcher, _):
            source.split("a", "b", "c")
            found = []
            for _ in range(500):
                await asyncio.sleep(0.01)
                found += fetcher.reasons_not_ready()
            return found, sorted(fetcher.metrics()["shards"])

    found, shards = run_virtual(run())
    assert found == []
    assert "s/b" in shards


@pytest.mark.parametrize(("silent", "reasons"), [({"s/a"}, []), ({"s/a", "s/b"}, ["no shard was read for 65 s"])])
def test_it_is_ready_until_no_shard_can_be_read_any_more(silent, reasons):
    async def run():
        source = source_of("a", "b")
        async with running(source, RecordingSink()) as (fetcher, _):
            source.silent = silent
            await asyncio.sleep(65)
            return fetcher.reasons_not_ready()

    assert run_virtual(run()) == reasons


def test_while_calls_fail_it_is_not_ready_after_ten_seconds_and_says_why():
    async def run():
        source = source_of("a")
        async with running(source, RecordingSink()) as (fetcher, _):
            source.silent = {"s/a"}
            source.metrics["s/a"].count_retry(TransientError("GetRecords", "ConnectionError", "cannot connect"))
            found = []
            for _ in range(2):
                await asyncio.sleep(8)
                found.append(fetcher.reasons_not_ready())
            return found

    before, (reason,) = run_virtual(run())

    assert before == []
    assert reason.startswith("no shard was read for 16 s: ")
    assert "cannot connect" in reason


def test_it_is_not_ready_while_a_checkpoint_is_stuck():
    async def run():
        sink = StuckSink()
        async with running(source_of("a"), sink) as (fetcher, _):
            sink.works.clear()
            await asyncio.sleep(63)
            stuck, metrics = fetcher.reasons_not_ready(), fetcher.metrics()["worker"]
            sink.works.set()
            await asyncio.sleep(0.1)
            return stuck, metrics, fetcher.reasons_not_ready()

    (stuck,), metrics, then = run_virtual(run())

    assert stuck.endswith("the store or the sink does not answer")
    assert 60_000 < metrics["checkpointRunningMs"] < metrics["checkpointAgeMs"]
    assert then == []


def test_a_commit_without_an_answer_is_named_with_its_place():
    async def run():
        sink, store = TableSink(Table()), MemoryStore()
        alone = Start(sink, store=store, clock=VirtualClock()).alone
        source = source_of("a")
        async with running(source, sink, alone=alone) as (fetcher, _):
            good, answers = fetcher.metrics()["worker"], asyncio.Event()
            sink.commit = lambda *_: answers.wait()
            source.shards["s/a"].put(9)
            await asyncio.sleep(63)
            reasons = fetcher.reasons_not_ready()
            del sink.commit
            answers.set()
            return good, reasons

    good, (reason,) = run_virtual(run())

    assert reason.endswith("/0 in memory is stored")
    assert (good["committedFiles"], good["committedBytes"], good["uncommittedRecords"]) == (0, 0, 0)


def test_a_start_that_was_fenced_off_is_not_ready():  # S6
    async def run():
        async with running(source_of("a"), RecordingSink(), alone=FencingStore().start()) as (fetcher, ended):
            await asyncio.wait([ended])
            return fetcher.reasons_not_ready()

    assert run_virtual(run()) == ["the run ended with FencedError: another start owns the state"]


def ended_waiting(source, during=None):
    """When `wait_ready` returned, in seconds after the run was started."""

    async def run():
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        loop, run = asyncio.get_running_loop(), asyncio.create_task(fetcher.run())
        begun, waiting = loop.time(), asyncio.create_task(fetcher.wait_ready())
        await during(fetcher) if during else None
        await asyncio.wait([waiting])
        ended_after = loop.time() - begun
        fetcher.stop()
        await asyncio.gather(run, return_exceptions=True)
        await fetcher.close()
        waiting.result()
        return ended_after

    return run_virtual(run())


def test_waiting_until_ready_ends_when_the_slowest_shard_was_read():
    source = source_of("a", "b", latency=1)
    source.silent = {"s/b"}

    async def answer(_):
        await asyncio.sleep(6.5)
        source.silent.clear()

    assert 7 <= ended_waiting(source, answer) < 8


def test_waiting_until_ready_ends_with_the_run():
    async def stop(fetcher):
        await asyncio.sleep(5)
        fetcher.stop()

    assert 5 <= ended_waiting(source_of("a", latency=100), stop) < 6


def test_waiting_until_ready_raises_what_ended_the_run():
    source = source_of("a", latency=1)
    source.failing["s/a"] = FatalKinesisError("GetRecords", "AccessDeniedException", "no")

    with pytest.raises(FatalKinesisError, match="AccessDenied"):
        ended_waiting(source)
