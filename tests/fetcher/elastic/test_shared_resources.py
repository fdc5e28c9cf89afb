"""What the processes of a group share with the service, such as a registered consumer: the last one that leaves releases it (F8)."""

import asyncio

from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses


async def two_processes():
    """Two processes with half of the shards each, and a list that grows when one keeps what is shared."""
    group, kept = ElasticProcesses(shards=4), []
    group.source.keep_shared = lambda: kept.append("kept")
    return *await group.join_two(), kept


def test_only_the_last_process_releases_what_is_shared():
    async def story():
        first, second, kept = await two_processes()
        await first.stop()
        assert kept == ["kept"]
        await second.stop()
        assert kept == ["kept"]

    run_virtual(story())


def test_processes_that_leave_together_release_what_is_shared():
    async def story():
        first, second, kept = await two_processes()
        await asyncio.gather(first.stop(), second.stop())
        assert kept == []

    run_virtual(story())


def test_a_process_that_fails_leaves_to_the_others_what_is_shared():
    async def story():
        first, second, kept = await two_processes()
        await first.kill()
        await first.fetcher.close()
        assert kept == ["kept"]
        await second.stop()

    run_virtual(story())
