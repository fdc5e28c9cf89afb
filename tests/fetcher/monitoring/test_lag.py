"""A1: lag is the age of the oldest record that is not finished, wherever it waits: in the sink, in a queue, or in the service."""

import asyncio
from contextlib import ExitStack, asynccontextmanager

import pytest

import recordpublisher as rp
import recordpublisher.local
from recordpublisher.plugins.runtime.job_progress import JobProgressMeter
from recordpublisher.publishers.errors import TransientError
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

DAY_MS = 86_400_000


@asynccontextmanager
async def running(source, sink):
    fetcher = make_fetcher(source, sink)
    await fetcher.open()
    run = asyncio.create_task(fetcher.run())
    yield fetcher
    fetcher.stop()
    await asyncio.gather(run, return_exceptions=True)
    await fetcher.close()


def source_of(count):
    source = ScriptedSource()
    source.add("a", *range(EPOCH_MS, EPOCH_MS + count))
    return source


def shown(fetcher):
    """The lag in seconds as progress line and metrics show it."""
    shard = fetcher.metrics()["shards"]["s/a"]
    return round(fetcher.progress().lag_ms / 1000), round(shard["lagMs"] / 1000), shard["millisBehindLatest"]


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY", "PER_SHARD"])
def test_records_that_no_handler_has_finished_are_the_lag_while_the_reads_are_at_the_tip(ordering):
    async def run():
        may_end = asyncio.Event()

        async def handle(record):
            await may_end.wait()

        async with running(source_of(5), rp.MapSink(handle, ordering=ordering)) as fetcher:
            await asyncio.sleep(25)
            slow = shown(fetcher)
            may_end.set()
            await asyncio.sleep(1)
            return slow, shown(fetcher)

    assert run_virtual(run()) == ((25, 25, 0), (0, 0, 0))


def test_the_lag_is_that_of_the_oldest_record_and_not_of_the_longest_call():
    async def run():
        async def handle(record):
            await asyncio.sleep(10 if record.sequence_number == "1" else 0)

        source = ScriptedSource()
        source.add("a", EPOCH_MS, EPOCH_MS + 5_000)
        async with running(source, rp.MapSink(handle, ordering="NONE")) as fetcher:
            await asyncio.sleep(8)
            before = shown(fetcher)[:2]
            await asyncio.sleep(5)
            return before, shown(fetcher)[:2]

    assert run_virtual(run()) == ((8, 8), (0, 0))


class SlowSink(RecordingSink):
    """Its write takes 30 s."""

    async def write(self, batch):
        await asyncio.sleep(30)
        await super().write(batch)


def test_a_record_that_is_being_written_is_the_lag():
    async def run():
        async with running(source_of(1), SlowSink()) as fetcher:
            await asyncio.sleep(20)
            during = shown(fetcher)[:2]
            await asyncio.sleep(12)
            return during, shown(fetcher)[:2]

    assert run_virtual(run()) == ((20, 20), (0, 0))


def test_a_service_that_is_away_is_seen_within_seconds():
    async def run():
        source = source_of(1)
        async with running(source, RecordingSink()) as fetcher:
            await asyncio.sleep(5)
            well = fetcher.progress()
            source.silent = {"s/a"}
            source.metrics["s/a"].count_retry(TransientError("GetRecords", "ConnectionError", "cannot connect"))
            await asyncio.sleep(3)
            return well, fetcher.progress(), fetcher.metrics()["shards"]["s/a"]["lagMs"]

    well, away, lag_ms = run_virtual(run())

    assert (well.lag_ms, well.unread_ms, well.read_failure) == (0, None, None)
    assert 2_000 < away.lag_ms == away.unread_ms == lag_ms < 4_500
    assert "cannot connect" in away.read_failure


def test_a_read_that_does_not_return_is_seen_without_a_failure():
    async def run():
        source = source_of(1)
        async with running(source, RecordingSink()) as fetcher:
            await asyncio.sleep(5)
            source.silent = {"s/a"}
            await asyncio.sleep(20)
            return fetcher.progress()

    away = run_virtual(run())

    assert 19_000 < away.lag_ms == away.unread_ms < 20_500
    assert away.read_failure is None


@pytest.mark.slow
async def test_an_endpoint_that_is_gone_is_told_in_the_line_of_progress_and_in_the_log(caplog):
    with ExitStack() as stack:
        endpoint = stack.enter_context(rp.local.serve_in_thread(streams={"orders": 1}))
        properties = {**endpoint.properties(), "flink.shard.getrecords.maxretries": 100}
        async with rp.DataFetcher("orders", properties, sink=rp.MemorySink()) as job:
            run = asyncio.create_task(job.run())
            await job.wait_ready()
            stack.close()
            while "cannot be read" not in caplog.text:  # noqa: ASYNC110 - no event for a line of the log
                await asyncio.sleep(0.1)
            meter = JobProgressMeter(0.0)
            meter.update(job.progress())
            line, reasons = str(meter.sample(1.0)), job.reasons_not_ready()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    assert "s ago: " in line
    assert " 0.0 s behind" not in line
    assert reasons == []  # a failure of a few seconds is no reason to restart a process
