"""A process is part of its group from its first confirmed heartbeat on, for as long as they are confirmed (E4, E12)."""

import asyncio

import pytest

from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses


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
        return len(process.store.workers), process.fetcher.metrics()["subtask"]["workerReplaced"], len(group.rows)

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
