"""Two supervisors that run the same job alone: their starts replace each other slowly, and each start says so once."""

import asyncio
import contextlib
import logging
import os
from itertools import pairwise

import pytest

from recordpublisher.fetcher.leases import worker_record
from recordpublisher.publishers.errors import FencedError
from recordpublisher.testing import run_virtual

from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import ElasticProcesses

MESSAGE = "Two supervisors seem to start the same job"


def now():
    return asyncio.get_running_loop().time()


def errors(caplog):
    return [record for record in caplog.records if record.levelno == logging.ERROR and MESSAGE in record.message]


async def taken_in(process):
    began = now()
    await process.start()
    process.running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # it is replaced
    return now() - began


async def restarted(group, starts):
    """A supervisor: its job runs until it is replaced, and is started again at once."""
    while True:
        process = await AloneProcess(group).start()
        starts.append(now())
        with contextlib.suppress(FencedError):
            await process.running
        await process.fetcher.close()


def test_the_second_replacement_within_a_minute_waits_and_says_so_once(caplog):
    async def story():
        group = ElasticProcesses(shards=2)
        processes = [AloneProcess(group) for _ in range(3)]
        seconds = []
        for process in processes:
            seconds.append(await taken_in(process))
            group.send()
            await group.wait_until_all_is_written()
        for process in processes:
            await process.kill()
        return seconds

    first, second, third = run_virtual(story())
    assert first < 1
    assert second < 1
    assert 30 <= third <= 61
    assert len(errors(caplog)) == 1


def test_two_supervisors_replace_each_other_once_in_half_a_minute_at_most_and_nothing_is_lost(caplog):
    async def story():
        group = ElasticProcesses(shards=2)
        starts = []
        supervisors = [asyncio.create_task(restarted(group, starts)) for _ in range(2)]
        for _ in range(60):
            await asyncio.sleep(10)
            group.send()
        await group.wait_until_all_is_written()
        for each in supervisors:
            each.cancel()
        await asyncio.gather(*supervisors, return_exceptions=True)
        return starts

    starts = run_virtual(story())
    pauses = [after - before for before, after in pairwise(starts[1:])]
    assert len(starts) > 8
    assert min(pauses) >= 30
    assert len(errors(caplog)) <= len(starts)  # one start may still wait


def test_a_start_that_waits_takes_the_shards_as_soon_as_the_running_worker_has_stopped():
    async def story():
        group = ElasticProcesses(shards=2)
        await taken_in(AloneProcess(group))
        await taken_in(second := AloneProcess(group))
        third = AloneProcess(group)
        starting = asyncio.create_task(taken_in(third))
        await asyncio.sleep(8)
        assert not starting.done()
        await second.stop()
        seconds = await starting
        await third.stop()
        return seconds

    assert run_virtual(story()) < 14


def test_a_minute_after_the_last_replacement_nothing_waits(caplog):
    async def story():
        group = ElasticProcesses(shards=2)
        for _ in range(3):
            seconds = await taken_in(process := AloneProcess(group))
            await asyncio.sleep(61)
        await process.stop()
        return seconds

    assert run_virtual(story()) < 1
    assert errors(caplog) == []


@pytest.mark.parametrize(("host", "waits"), [(None, False), ("another-host", True)])
def test_a_worker_whose_process_has_ended_on_this_host_is_not_waited_for(host, waits, monkeypatch):
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(pid, 0)

    async def story():
        group = ElasticProcesses(shards=2)
        await taken_in(AloneProcess(group))
        killed = AloneProcess(group)
        with monkeypatch.context() as patch:
            patch.setattr("recordpublisher.fetcher.elastic.alone_worker.os.getpid", lambda: pid)
            patch.setattr("recordpublisher.fetcher.elastic.alone_worker.HOST", host or worker_record.HOST)
            await killed.start()
        await killed.kill()
        seconds = await taken_in(process := AloneProcess(group))
        await process.stop()
        return seconds

    assert (run_virtual(story()) > 25) == waits


def test_a_start_waits_no_longer_than_a_minute_through_an_outage_of_its_store():
    async def story():
        group = ElasticProcesses(shards=2)
        await taken_in(AloneProcess(group))
        await taken_in(AloneProcess(group))
        third = AloneProcess(group)
        loop = asyncio.get_running_loop()
        loop.call_later(10, setattr, third.store, "is_cut", True)
        loop.call_later(25, setattr, third.store, "is_cut", False)
        seconds = await taken_in(third)
        await third.stop()
        return seconds

    assert 30 <= run_virtual(story()) <= 75
