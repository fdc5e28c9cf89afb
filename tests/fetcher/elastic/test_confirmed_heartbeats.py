"""A process is part of its group from its first confirmed heartbeat on, for as long as they are confirmed (E4, E12)."""

import asyncio

import pytest

from recordpublisher.publishers.errors import RetriesExhaustedError, SinkError, StateError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.commits.committing_sink import Table, TableSink
from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.scripted_source import RecordingSink


def test_a_process_that_cannot_reach_the_store_any_more_ends_with_an_error():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: bool(process.shards))
        process.store.is_cut = True
        process.fetcher.stop()
        with pytest.raises(StoreUnavailableError, match="the last checkpoint is missing"):
            await process.running
        await process.fetcher.close()

    run_virtual(story())


def test_a_process_whose_first_heartbeat_took_longer_than_a_lease_begins_anew_and_was_not_replaced():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        process.store.is_cut = True
        await asyncio.sleep(DURATION * 2)
        process.store.is_cut = False
        group.send(3)
        await group.wait_until_all_is_written()
        await process.stop()
        return len(process.store.workers), process.fetcher.metrics()["worker"]["workerReplaced"], len(group.rows)

    assert run_virtual(story()) == (2, 0, 3)


def test_a_process_is_ready_when_a_heartbeat_is_confirmed():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: not process.fetcher.reasons_not_ready())
        process.store.is_cut = True
        await asyncio.sleep(DURATION)
        (reason,) = process.fetcher.reasons_not_ready()
        await process.kill()
        return reason

    assert "has not confirmed a heartbeat" in run_virtual(story())


# --- errors of a process that others have replaced, or may have -----------------------------------------------------------------------


class SinkOfADeletedFolder(RecordingSink):
    """One call waits, as for a slow disk, until the test lets it fail."""

    def __init__(self, fails_in):
        super().__init__()
        self.fails_in = fails_in
        self.waits, self.may_fail = asyncio.Event(), asyncio.Event()

    async def write(self, batch):
        await self._fail_in("write")
        await super().write(batch)

    async def flush(self, checkpoint=None):
        await self._fail_in("flush")
        await super().flush(checkpoint)

    async def _fail_in(self, call):
        if call == self.fails_in and not self.waits.is_set():
            self.waits.set()
            await self.may_fail.wait()
            raise SinkError("files cannot be written: no such folder")


async def a_process_whose_sink_waits(group, sink):
    process = await group.join(sink=sink)
    await group.wait_until(lambda: bool(process.shards))
    group.send()
    await group.wait_until(sink.waits.is_set)
    return process


@pytest.mark.parametrize("fails_in", ["write", "flush"])
@pytest.mark.parametrize("knows", [True, False], ids=["knows it", "does not know it yet"])
def test_an_error_of_the_sink_ends_no_process_that_was_replaced(fails_in, knows):
    async def story():
        group, sink = ElasticProcesses(shards=2), SinkOfADeletedFolder(fails_in)
        first = await a_process_whose_sink_waits(group, sink)
        first.store.is_cut = True
        second = await group.join(sink=(other := SinkOfADeletedFolder(fails_in=None)))
        await group.wait_until(lambda: len(second.shards) == 2)
        if knows:
            first.store.is_cut = False
            await group.wait_until(lambda: len(first.store.workers) == 2)
        sink.may_fail.set()
        await asyncio.sleep(1)
        first.store.is_cut = False
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        group.send()
        await group.wait_until(lambda: group.sent <= {*other.rows, *sink.rows})
        await first.stop()
        await second.stop()

    run_virtual(story())


@pytest.mark.parametrize("fails_in", ["write", "flush"])
def test_an_error_of_the_sink_in_an_outage_of_the_store_fails_the_job_when_nobody_has_replaced_it(fails_in):
    """It stays in its sink, as in those that write nothing more after an error."""

    class Broken(SinkOfADeletedFolder):
        async def _fail_in(self, call):
            if call == self.fails_in:
                self.waits.set()
                await self.may_fail.wait()
                raise SinkError("the disk is full")

    async def story():
        group, sink = ElasticProcesses(shards=1), Broken(fails_in)
        process = await a_process_whose_sink_waits(group, sink)
        process.store.is_cut = True
        await asyncio.sleep(15)  # without permission, and not yet silent for a lease
        sink.may_fail.set()
        await asyncio.sleep(1)
        process.store.is_cut = False
        with pytest.raises(SinkError, match="the disk is full"):
            async with asyncio.timeout(60):
                await process.running
        await process.fetcher.close()

    run_virtual(story())


@pytest.mark.parametrize("is_suspended", [True, False])
def test_an_error_of_a_look_at_the_group_fails_the_job_only_while_heartbeats_are_confirmed(is_suspended):
    """What a dead worker left is deleted by whoever comes first: one that was suspended comes late, and finds nothing."""

    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: bool(process.shards))
        clean, has_failed = process.worker._upkeep.clean, asyncio.Event()

        async def fail_once(view):
            if has_failed.is_set():
                return await clean(view)
            if is_suspended:
                asyncio.get_running_loop().suspend(2 * DURATION)
            has_failed.set()
            raise StateError("the mark of a commit is gone")

        process.worker._upkeep.clean = fail_once
        await group.wait_until(has_failed.is_set)
        group.send()
        try:
            await group.wait_until_all_is_written()
        except TimeoutError:
            return process.running.exception()
        await process.stop()

    found = run_virtual(story())
    assert found is None if is_suspended else isinstance(found, StateError)


async def _watch(process, changes):
    """Note each change between ready and not ready."""
    while True:
        reasons = process.fetcher.reasons_not_ready()
        if not changes or bool(changes[-1]) != bool(reasons):
            changes.append(reasons)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("shards", [1, 4])
def test_processes_that_start_become_ready_once_and_stay_so(shards):
    """One of them has no shard if there is only one. With four, shards move to the second process later."""

    async def story():
        group = ElasticProcesses(shards=shards)
        group.source.latency = 0.5
        seen = []
        watching, started = [], []
        for _ in range(2):
            process = group.made()
            await process.fetcher.open()
            seen.append([])
            watching.append(asyncio.create_task(_watch(process, seen[-1])))
            process.running = asyncio.create_task(process.fetcher.run())
            started.append(process)
            await asyncio.sleep(0.4)
        await asyncio.sleep(3 * DURATION)
        for each in watching:
            each.cancel()
        for each in started:
            await each.stop()
        return seen

    for changes in run_virtual(story()):
        assert [bool(each) for each in changes] == [True, False], changes


def test_a_second_process_is_ready_as_soon_as_it_has_joined_if_the_first_one_lives():
    async def story():
        group = ElasticProcesses(shards=1)
        first = await group.join()
        await group.wait_until(lambda: not first.fetcher.reasons_not_ready())
        second = await group.join()
        await asyncio.sleep(1)
        reasons = second.fetcher.reasons_not_ready()
        await second.stop()
        await first.stop()
        return reasons

    assert run_virtual(story()) == []


@pytest.mark.parametrize("count", [1, 2])
def test_processes_that_wait_for_the_leases_of_killed_processes_are_not_ready_and_say_why(count):
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 2)
        await first.kill()
        started = [await group.join() for _ in range(count)]
        await asyncio.sleep(DURATION / 2)
        waiting = [each.fetcher.reasons_not_ready() for each in started]
        await group.wait_until(lambda: sum(len(each.shards) for each in started) == 2)
        await asyncio.sleep(1)
        ready = [each.fetcher.reasons_not_ready() for each in started]
        for each in started:
            await each.stop()
        return waiting, ready

    waiting, ready = run_virtual(story())
    for (reason,) in waiting:
        assert reason.startswith("no shard is read yet: all shards belong to other workers (")
        assert "," not in reason.partition(", which may")[0], "only the killed process has leases"
    assert ready == [[]] * count


class SinkOfADatabase(TableSink):
    """Cannot stage while its database does not answer."""

    is_away = False
    refused = 0

    async def stage(self, number):
        if self.is_away:
            self.refused += 1
            raise RetriesExhaustedError("the database does not answer")
        return await super().stage(number)


@pytest.mark.parametrize("is_store_away", [True, False])
def test_an_outage_of_the_target_at_a_commit_ends_no_process(is_store_away):
    """Its rows stay in the sink, and the next commit has them."""

    async def story():
        group, table = ElasticProcesses(shards=1), Table()
        process = await group.join(sink=(sink := SinkOfADatabase(table)))
        await group.wait_until(lambda: bool(process.shards))
        group.send()
        sink.is_away, process.store.is_cut = True, is_store_away
        await group.wait_until(lambda: sink.refused > 0)
        await asyncio.sleep(5)
        sink.is_away = process.store.is_cut = False
        group.send()
        await group.wait_until(lambda: len(table.rows) == 10)
        await process.stop()
        return len(process.store.workers)

    assert run_virtual(story()) == 1
