"""What a queue job shows: metrics, progress, readiness and alarms."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.alarms import AlarmKind
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.plugins.dashboard.snapshots import LiveSnapshots
from recordpublisher.plugins.metrics.export import FetchersOfProcess, exported_tables
from recordpublisher.publishers.errors import TransientError
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, queue_job


def during(looks, queue=None, sink=None, seconds=400, **more):
    """What each function returns of a job that runs, at its second."""
    seen = []

    async def job():
        made = queue_job(queue or FakeQueue(), sink or rp.MemorySink(), **more)
        await made.open()
        running = asyncio.create_task(made.run_bounded(Bounds(max_time=seconds)))
        for second, look in looks:
            await asyncio.sleep(second - asyncio.get_running_loop().time())
            seen.append(await look(made) if asyncio.iscoroutinefunction(look) else look(made))
        await running
        await made.close()

    run_virtual(job())
    return seen


def slow_handler(seconds):
    async def handler(record):
        await asyncio.sleep(seconds)

    return rp.MapSink(handler, ordering="NONE", concurrency=4, clock=VirtualClock())


class Away(FakeSource):
    """Fails from the fifth second on, as its retries count it."""

    async def receive(self, metrics):
        if asyncio.get_running_loop().time() > 5:
            metrics.count_retry(TransientError("Receive", "InternalFailure", "away"))
            await asyncio.sleep(1000)
        return await super().receive(metrics)


def test_metrics_have_the_names_of_those_of_shards():
    (metrics,) = during([(2, lambda job: job.metrics())], seconds=3)

    assert list(metrics["worker"]) == [metric.name for metric in WORKER_METRICS]
    assert [sorted(each) for each in metrics["shards"].values()] == [
        sorted(metric.name for metric in SHARD_METRICS)
    ] * 2


def test_a_record_that_is_worked_on_is_unacknowledged_and_counts_for_lag_until_it_is_done():
    queue = FakeQueue()
    queue.put(*range(8))
    looks = [(second, lambda job: (job.metrics(), job.progress())) for second in (5, 100)]
    (at_work, progress), (done, after) = during(looks, queue, slow_handler(30), seconds=200)
    shard, later = at_work["shards"]["s/receiver-000"], done["shards"]["s/receiver-000"]

    assert (shard["unacknowledged"], shard["records"], shard["unfinishedRecords"]) == (8, 8, 8)
    assert (progress.records, progress.unfinished, progress.open_shards) == (8, 8, 2)
    assert 4000 < shard["lagMs"] <= 5000
    assert progress.lag_ms == shard["lagMs"]
    assert (later["unacknowledged"], later["lagMs"], after.lag_ms, after.unfinished) == (0, 0, 0, 0)


async def snapshot(job):
    class Here:
        worker, job_name = 0, ""
        metrics, sink_metrics, reasons_not_ready = job.metrics, job.sink_metrics, job.reasons_not_ready

    source = FetchersOfProcess([Here()])
    exported_tables(await source.metrics())
    return await LiveSnapshots(source, VirtualClock(), 60_000).snapshot()


def test_the_dashboard_and_exporters_show_it():
    queue = FakeQueue()
    queue.put(*range(8))
    (shown,) = during([(5, snapshot)], queue, slow_handler(30), seconds=100)

    assert [shard.in_flight for shard in shown.shards] == [8, 0]
    assert shown.workers[0].not_ready == []


def test_it_is_ready_while_the_queue_answers():
    looks = [(second, lambda job: job.reasons_not_ready()) for second in (3, 90)]
    assert during(looks) == [[], []]


def test_it_is_not_ready_before_it_runs_and_before_the_queue_has_answered():
    assert queue_job(FakeQueue(), rp.MemorySink()).reasons_not_ready() == [
        "this worker does not read: it has not started yet"
    ]
    assert during([(0.5, lambda job: job.reasons_not_ready())], seconds=5) == [["nothing was received yet"]]


def test_a_queue_that_does_not_answer_makes_it_not_ready_and_an_alarm_and_is_on_the_progress_line():
    alarms = []
    looks = [(second, lambda job: (job.reasons_not_ready(), job.progress())) for second in (4, 40)]
    more = {"on_alarm": alarms.append, "properties": {"flink.alarm.interval": 60_000}}
    (fine, before), (reasons, progress) = during(looks, source=Away(FakeQueue()), **more)

    assert fine == []
    assert (before.unread_ms, before.read_failure) == (None, None)
    assert len(reasons) == 1
    assert reasons[0].startswith("nothing was received for 3")
    assert "away" in reasons[0]
    assert progress.unread_ms > 30_000
    assert "away" in progress.read_failure
    assert alarms[0].kind is AlarmKind.UNREAD
    assert alarms[0].subject == "s/receiver-000"
    assert "away" in alarms[0].reason


@pytest.mark.parametrize("kind", [AlarmKind.HANGING, AlarmKind.UNREAD])
def test_a_sink_that_does_not_return_is_an_alarm_which_is_over_when_it_does(kind):
    queue, alarms = FakeQueue(visibility=1000), []
    queue.put(1)

    class Hangs(rp.MemorySink):
        async def write(self, batch):
            await asyncio.sleep(150)

    sink = slow_handler(150) if kind is AlarmKind.HANGING else Hangs()
    during([], queue, sink, on_alarm=alarms.append, properties={"flink.alarm.interval": 60_000})

    assert {alarm.kind for alarm in alarms} == {kind}
    assert not alarms[0].is_over
    assert alarms[-1].is_over


def test_wait_ready_returns_after_the_first_receive():
    async def look(job):
        await job.wait_ready()
        return asyncio.get_running_loop().time()

    (seconds,) = during([(0, look)], seconds=10)
    assert 1 <= seconds < 2


def test_the_lag_of_a_receiver_that_rests_does_not_grow():
    queue = FakeQueue()
    queue.put(*range(403))

    async def job():
        made = queue_job(queue, rp.MemorySink(), receivers=4)
        await made.open()
        running = asyncio.create_task(made.run_bounded(Bounds(max_time=700)))
        while len(queue.messages) > 50:  # noqa: ASYNC110 - the back-log
            await asyncio.sleep(0.05)
        for number in range(1000, 1040):  # it ends, and a few more records come
            await asyncio.sleep(0.3)
            queue.put(number)
        await asyncio.sleep(600)
        lags = [each["lagMs"] for each in made.metrics()["shards"].values()]
        await running
        await made.close()
        return lags

    assert run_virtual(job()) == [0, 0, 0, 0]
