"""E5, E11: what a process tells of others that do not give their shards up, and of a write of its own that others repeat."""

import asyncio

from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.scripted_source import RecordingSink

ALARMS = {"flink.alarm.interval": 60_000}
NO_PERIODIC_CHECKPOINTS = {"flink.state.checkpoint.interval": -1}
TEXT = "a worker of the group sends heartbeats and does not release shards that others should read: worker "


class StuckSink(RecordingSink):
    """Its writes return when the test says so; `free` ones at once."""

    def __init__(self, *, free=False):
        super().__init__()
        self.may_return = asyncio.Event()
        if free:
            self.may_return.set()
        self.is_stuck = False

    async def write(self, batch):
        self.is_stuck = True
        await self.may_return.wait()
        await super().write(batch)


class StuckFlush(StuckSink):
    """The same of its flushes."""

    async def write(self, batch):
        await RecordingSink.write(self, batch)

    async def flush(self, checkpoint=None):
        self.is_stuck = True
        await self.may_return.wait()
        return await super().flush(checkpoint)


def test_a_worker_that_does_not_give_a_planned_shard_is_an_alarm_of_one_other_worker(caplog):
    async def story():
        group, sink = ElasticProcesses(shards=4), StuckSink()
        first = await group.join(sink=sink, **ALARMS)
        group.send()
        await group.wait_until(lambda: sink.is_stuck)
        others = [await group.join(sink=StuckSink(free=True), **ALARMS) for _ in range(2)]
        await asyncio.sleep(30)
        counted = [each.fetcher.metrics()["worker"]["withheldShards"] for each in others]
        assert TEXT not in caplog.text
        await asyncio.sleep(60)
        text = caplog.text
        sink.may_return.set()
        await group.wait_until(lambda: all(each.shards for each in others))
        await asyncio.sleep(DURATION)
        for process in (first, *others):
            await process.stop()
        return first.fetcher.metrics()["worker"]["worker"], sorted(counted), text

    with caplog.at_level("INFO", "recordpublisher.alarm"):
        worker, counted, text = run_virtual(story())
    assert counted == [0, 2]
    assert text.count(f"{TEXT}{worker}, for ") == 1
    assert f"run `recordpublisher group drain JOB {worker} --force`" in text
    assert f"over: {TEXT}{worker}" in caplog.text


def test_a_worker_that_leaves_and_does_not_come_to_its_end_is_an_alarm(caplog):
    async def story():
        group, sink = ElasticProcesses(shards=4), StuckSink()
        first = await group.join(sink=sink, **ALARMS)
        second = await group.join(sink=StuckSink(free=True), **ALARMS)
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 2)
        group.send()
        first.fetcher.stop()
        await group.wait_until(lambda: sink.is_stuck)
        await asyncio.sleep(90)
        withheld = second.fetcher.metrics()["worker"]["withheldShards"]
        sink.may_return.set()
        await first.kill()
        await second.kill()
        return withheld

    assert run_virtual(story()) == 2
    assert TEXT in caplog.text


def test_a_group_that_shares_its_shards_raises_no_alarm(caplog):
    async def story():
        group = ElasticProcesses(shards=6, cost=1.0)
        processes = []
        for _ in range(3):
            processes.append(await group.join(**ALARMS))
            group.send()
            await asyncio.sleep(90)
        for process in processes:
            await process.stop()

    run_virtual(story())
    assert TEXT not in caplog.text


def test_the_write_that_was_going_on_when_a_process_learned_that_it_was_replaced_is_counted():
    async def story():
        group, sink = ElasticProcesses(shards=2), StuckSink()
        first, second = await group.join(sink=sink), await group.join(sink=StuckSink(free=True))
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        group.send(5)
        await group.wait_until(lambda: sink.is_stuck)
        first.store.is_cut = True
        await group.wait_until(lambda: len(second.shards) == 2)
        first.store.is_cut = False
        await asyncio.sleep(DURATION)
        metrics = first.fetcher.metrics()["worker"]
        sink.may_return.set()
        await first.kill()
        await second.stop()
        return metrics["workerReplaced"], metrics["inFlightWhenReplaced"]

    assert run_virtual(story()) == (1, 5)


def test_the_checkpoint_of_a_hand_over_counts_in_the_age_of_the_last_one():
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join(**NO_PERIODIC_CHECKPOINTS)
        await group.wait_until(lambda: len(first.shards) == 2)
        second = await group.join(**NO_PERIODIC_CHECKPOINTS)
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        ages = [each.fetcher.metrics()["worker"]["checkpointAgeMs"] for each in (first, second)]
        await first.stop()
        await second.stop()
        return ages

    of_giver, of_taker = run_virtual(story())
    assert of_giver is not None
    assert of_giver < DURATION * 1000
    assert of_taker is None


def test_a_hand_over_that_waits_for_the_flush_is_a_checkpoint_that_goes_on():
    async def story():
        group, sink = ElasticProcesses(shards=2), StuckFlush()
        first = await group.join(sink=sink, **NO_PERIODIC_CHECKPOINTS)
        await group.wait_until(lambda: len(first.shards) == 2)
        second = await group.join(sink=StuckFlush(free=True))
        await group.wait_until(lambda: sink.is_stuck)
        await asyncio.sleep(90)
        running_ms = first.fetcher.metrics()["worker"]["checkpointRunningMs"]
        sink.may_return.set()
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        await first.stop()
        await second.stop()
        return running_ms

    assert 90_000 <= run_virtual(story()) < 91_000


def test_what_was_left_out_of_a_shard_that_moved_still_counts():
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 2)
        for key in ("s/shard-0", "s/shard-1"):
            metrics = first.fetcher._view.table[key].metrics
            metrics.add("skipped_records", 2)
            metrics.add("dead_letters")
        second = await group.join()
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        progress, worker = first.fetcher.progress(), first.fetcher.metrics()["worker"]
        assert second.fetcher.progress().skipped == 0
        await first.stop()
        await second.stop()
        return (progress.skipped, progress.dead_letters), (worker["skippedRecords"], worker["deadLetters"])

    assert run_virtual(story()) == ((4, 2), (4, 2))
