"""Shards with less capacity than documented: it is used up, and several writers share it (K1, K4)."""

import asyncio

import pytest

from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.writable_stream import FakeKinesis

SECONDS = 60


async def write_for(sinks, seconds):
    """The records of each sink acknowledged in this many seconds, after ten seconds of warm-up."""

    async def write_on(sink):
        while True:
            await sink.put(bytes(200), "k")

    writing = [asyncio.create_task(write_on(sink)) for sink in sinks]
    await asyncio.sleep(10)
    before = [sink.metrics()["numRecordsOut"] for sink in sinks]
    await asyncio.sleep(seconds)
    after = [sink.metrics()["numRecordsOut"] for sink in sinks]
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    return [late - early for late, early in zip(after, before, strict=True)]


def run(rate, writers, latency=0.005):
    async def job():
        fake = FakeKinesis()
        fake.rate, fake.latency = rate, latency
        sinks = [
            KinesisSink("out", {"aws.region": "eu-west-1"}, queue_limit=2_000, port=fake, clock=VirtualClock())
            for _ in range(writers)
        ]
        async with sinks[0]:
            for sink in sinks[1:]:
                await sink.__aenter__()
            written = await write_for(sinks, SECONDS)
            throttles, requests = sinks[0].metrics()["throttles"], sinks[0].metrics()["requests"]
            fake.rate = None
            for sink in sinks[1:]:
                await sink.close()
        return written, throttles, requests

    return run_virtual(job())


@pytest.mark.slow
@pytest.mark.parametrize("latency", [0.002, 0.1])
@pytest.mark.parametrize("rate", [20, 100, 500])
def test_at_least_nine_tenths_of_a_slow_shards_capacity_are_used(rate, latency):
    (written,), throttles, requests = run(rate, 1, latency)
    assert 0.9 * rate * SECONDS <= written <= 1.1 * rate * SECONDS
    assert 0 < throttles < 8_000, "without a window that shrinks it is ten times as much"
    assert requests < 70 * 30, "a refusal is followed by a pause"


def test_a_shard_with_the_documented_capacity_throttles_nothing():
    (written,), throttles, _ = run(1_000, 1)
    assert written >= 0.98 * 1_000 * SECONDS
    assert throttles == 0


@pytest.mark.slow
def test_writers_of_one_shard_get_similar_shares():
    written, _, _ = run(1_000, 3)
    assert sum(written) >= 900 * SECONDS
    assert min(written) >= max(written) / 3
