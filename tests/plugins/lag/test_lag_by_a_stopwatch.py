"""What a job shows of its lag in six places is what a stopwatch shows: the age of the oldest record that is not done, or for how long
nothing could be read."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.local import in_memory
from recordpublisher.plugins.dashboard.snapshots import LiveSnapshots
from recordpublisher.plugins.metrics.export import FetchersOfProcess
from recordpublisher.plugins.runtime.job_progress import JobProgressMeter
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.memory_store import MemoryStore

RETENTION_MS = 24 * 3_600_000
SHOWN_ROUGHLY_MS = 1_000
"""A log line has tenths of a second, and snapshots are a second old at most."""


class Stopwatch:
    """When each record that is not done was put."""

    def __init__(self, clock):
        self._clock = clock
        self._put_ms = {}

    def put(self, stream, number):
        self._put_ms[number] = self._clock.now_ms()
        stream.put(b"%d" % number, "key")

    def done(self, record):
        del self._put_ms[int(record.data)]

    def oldest_age_ms(self):
        return self._clock.now_ms() - min(self._put_ms.values())


async def shown(job, clock):
    """What each place says of the only shard's lag (ms); the line of progress; why the job is not ready."""
    (shard,) = job.metrics()["shards"].values()
    served = await LiveSnapshots(FetchersOfProcess([job]), clock, 60_000).snapshot()
    meter = JobProgressMeter(began=0.0)
    meter.update(job.progress())
    line = str(meter.sample(clock.monotonic()))
    return (
        {
            "metric lagMs": shard["lagMs"],
            "time to loss": RETENTION_MS - shard["timeToRetentionLossMs"],
            "lag --live and dashboard": served.shards[0].lag_ms,
            "time to loss of the dashboard": RETENTION_MS - served.shards[0].loss_ms,
            "progress": job.progress().lag_ms,
        },
        line,
        job.reasons_not_ready(),
    )


def job_of(clock, sink, **options):
    patient = {
        "aws.region": "eu-west-1",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.shard.getrecords.maxretries": 1_000,
    }
    return rp.DataFetcher("orders", patient, sink=sink, clock=clock, **options)


async def _with_job(clock, sink, story, **options):
    with in_memory({"orders": 1}, clock=clock) as account:
        async with job_of(clock, sink, **options) as job:
            running = asyncio.create_task(job.run())
            try:
                return await story(account, job)
            finally:
                running.cancel()
                await asyncio.wait([running])


@pytest.mark.parametrize("seconds", [20, 80])
def test_a_sink_that_is_slower_than_its_stream_shows_the_age_of_its_oldest_record_everywhere(seconds):
    clock = VirtualClock()
    watch = Stopwatch(clock)

    async def handle(record):
        await asyncio.sleep(3)
        watch.done(record)

    async def story(account, job):
        stream = account.find("orders")
        for number in range(seconds * 150):
            watch.put(stream, number)
            if number % 150 == 149:
                await asyncio.sleep(1)
        return (*await shown(job, clock), watch.oldest_age_ms())

    places, line, reasons, age_ms = run_virtual(_with_job(clock, rp.MapSink(handle), story))
    assert age_ms > 10_000
    assert {name: abs(value - age_ms) <= SHOWN_ROUGHLY_MS for name, value in places.items()} == dict.fromkeys(
        places, True
    )
    assert f"{age_ms / 1000:.1f} s behind" in line or f"{age_ms / 60_000:.1f} min behind" in line, (line, age_ms)
    assert reasons == []  # it reads and works


def test_a_job_that_is_stopped_shows_the_age_of_what_it_leaves_for_its_next_start():
    clock = VirtualClock()

    async def handle(record):
        await asyncio.sleep(3)

    async def story(account, job):
        for number in range(750):
            account.find("orders").put(b"%d" % number, "key")
            await asyncio.sleep(1 if number % 150 == 149 else 0)
        job.stop()
        await asyncio.sleep(10)
        (shard,) = job.metrics()["shards"].values()
        return await shown(job, clock), job.progress(), shard["unfinishedRecords"]

    job = _with_job(clock, rp.MapSink(handle), story, state_store=MemoryStore())
    (places, line, _), told, unfinished = run_virtual(job)
    assert (told.unfinished, told.left > 0, unfinished) == (0, True, told.left)
    assert min(places.values()) > 10_000, places
    assert "0.0 s behind" not in line


def test_an_endpoint_that_is_away_shows_for_how_long_from_the_second_after():
    clock, seen = VirtualClock(), []

    async def story(account, job):
        account.find("orders").put(b"1", "key")
        await asyncio.sleep(10)
        account.faults.start_random("reset@GetRecords=1.0")
        away = clock.monotonic()
        for _ in range(30):
            await asyncio.sleep(1)
            seen.append((clock.monotonic() - away, *await shown(job, clock)))

    run_virtual(_with_job(clock, rp.MemorySink(), story))
    for seconds, places, line, reasons in seen:
        assert {
            name: abs(value - 1_000 * seconds) <= SHOWN_ROUGHLY_MS for name, value in places.items()
        } == dict.fromkeys(places, True)
        assert f"last read {seconds:.0f} s ago: GetRecords failed with ConnectionResetError" in line
        assert [reason.partition(": ")[0] for reason in reasons] == [f"no shard was read for {seconds:.0f} s"] * (
            seconds >= 10
        )
