"""W3, W7: a worker that was stopped or starved reads its shards and refreshes the global watermark before it judges idleness or emits."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.watermarks import OwnWatermark, ShardsStatus
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

IDLE = {"flink.shard.idle.interval": 10_000, "flink.watermark.lookahead.millis": 1_000}


class RecordingTracker(OwnWatermark):
    """Records calls with their time."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def report(self, status, watermark):
        self.heard.append((asyncio.get_running_loop().time(), status))
        return super().report(status, watermark)

    def since(self, moment):
        return [status for at, status in self.heard if at > moment]


class Job:
    """One shard whose responses take 100 ms; a test suspends the process."""

    def __init__(self, source=None):
        self.source, self.sink, self.tracker = source or ScriptedSource(), RecordingSink(), RecordingTracker()
        self.source.travel = 0.1
        if source is None:
            self.source.add("a", 5)

    def run(self, script):
        async def job():
            fetcher = make_fetcher(self.source, self.sink, IDLE, tracker=self.tracker)
            await fetcher.open()
            running = asyncio.create_task(fetcher.run_bounded(Bounds()))
            result = await script(asyncio.get_running_loop(), fetcher)
            fetcher.stop()
            await running
            return result

        return run_virtual(job())


@pytest.mark.parametrize("silent_for", [9.0, 9.7, 9.95, 10.0, 10.05])
def test_a_response_from_before_a_suspension_makes_no_shard_idle(silent_for):
    job = Job()

    async def script(loop, fetcher):
        await asyncio.sleep(silent_for)
        job.source.shards["s/a"].put(500)  # while the process is stopped
        loop.suspend(60)
        woke = loop.time()
        await asyncio.sleep(2)
        return woke

    woke = job.run(script)

    assert job.tracker.since(woke)
    assert set(job.tracker.since(woke)) == {ShardsStatus.ACTIVE}
    assert ("idle", None) not in job.sink.events
    assert [time for _, time in job.sink.rows] == [5, 500]


def test_a_shard_that_was_idle_is_read_before_it_counts_as_idle_again():
    job = Job()

    async def script(loop, fetcher):
        await asyncio.sleep(20)
        assert fetcher.metrics()["shards"]["s/a"]["idle"]
        loop.suspend(60)
        woke = loop.time()
        await asyncio.sleep(10)
        return woke

    woke = job.run(script)
    after = [(at - woke, status) for at, status in job.tracker.heard if at > woke - 0.001]

    assert after[0][1] is ShardsStatus.ACTIVE, "the first thing it says"
    first_idle = next(seconds for seconds, status in after if status is ShardsStatus.IDLE)
    assert 2 <= first_idle <= 4, "once two seconds of silence were seen anew"


def test_the_global_watermark_is_refreshed_before_a_shard_is_held_back():  # W7
    source = ScriptedSource()
    source.add("ahead", *range(0, 100_000, 1_000))
    source.add("low", 0)
    job = Job(source)

    async def script(loop, fetcher):
        await asyncio.sleep(5)
        assert len(job.sink.rows) == 3
        loop.suspend(60)
        woke, rows = loop.time(), len(job.sink.rows)
        await asyncio.sleep(0)
        while not job.tracker.since(woke - 0.001):
            assert len(job.sink.rows) == rows
            await asyncio.sleep(0)
        return loop.time() - woke

    assert job.run(script) < 0.1


def test_suspended_time_does_not_count_as_silence():
    job = Job()

    async def script(loop, fetcher):
        for _ in range(30):
            await asyncio.sleep(0.2)
            loop.suspend(30)
        return fetcher.metrics()["shards"]["s/a"]

    shard = job.run(script)

    assert not shard["idle"]
    assert shard["silentMs"] < 10_000


def seconds_until_idle(starve):
    async def script(loop, fetcher):
        while not fetcher.metrics()["shards"]["s/a"]["idle"]:
            await asyncio.sleep(0.01)
            loop.suspend(starve)  # 10 ms of work, then the quota is used up
        return loop.time()

    return Job().run(script)


def test_in_a_starved_process_a_shard_becomes_idle_later_not_earlier():
    healthy, starved = seconds_until_idle(0), seconds_until_idle(0.087)

    assert healthy >= 10
    assert starved > healthy + 0.5
