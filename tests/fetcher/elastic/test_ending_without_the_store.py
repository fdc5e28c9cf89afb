"""E4, E9: a process ends also while its store is out of reach and a batch waits for the permission to be written."""

import asyncio

import pytest

from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcess, ElasticProcesses


async def process_with_a_waiting_batch() -> tuple[ElasticProcesses, ElasticProcess]:
    group = ElasticProcesses(shards=1)
    process = await group.join()
    await group.wait_until(lambda: bool(process.shards))
    process.store.is_cut = True
    await asyncio.sleep(DURATION)
    group.send(1)
    await asyncio.sleep(DURATION)
    return group, process


def test_a_run_that_is_cancelled():
    async def story():
        group, process = await process_with_a_waiting_batch()
        async with asyncio.timeout(DURATION):
            await process.kill()
        return group.rows

    assert run_virtual(story()) == []


def test_a_run_that_is_stopped():
    async def story():
        group, process = await process_with_a_waiting_batch()
        process.fetcher.stop()
        async with asyncio.timeout(4 * DURATION):
            with pytest.raises(StoreUnavailableError, match="the last checkpoint is missing"):
                await process.running
        await process.fetcher.close()
        return group.rows

    assert run_virtual(story()) == []
