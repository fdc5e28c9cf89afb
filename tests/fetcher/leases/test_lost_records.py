"""Somebody deletes the record of a worker that owns shards, for example a rule of the bucket that deletes old objects."""

import asyncio

from recordpublisher.fetcher.leases.group_store import WORKERS
from recordpublisher.testing import run_virtual

from fakes.leases.lease_group import LeaseGroup


def test_others_take_its_shards_after_a_lease_duration_where_it_stopped(caplog):
    async def story():
        group = LeaseGroup(4)
        try:
            for name in "ab":
                group.join(name)
                await asyncio.sleep(30)
            readers = group.readers["a"]
            readers.positions = dict.fromkeys(readers.positions, 7)
            await group.workers["a"].checkpoint()
            await group.kill("a")
            del group.store.values[f"{WORKERS}a"]
            await asyncio.sleep(group.settings.duration - 1)
            before = len(group.readers["b"].positions)
            await asyncio.sleep(3 * group.settings.interval)
            return before, sorted(group.readers["b"].positions.values())
        finally:
            await group.close()

    assert run_virtual(story()) == (2, [0, 0, 7, 7])
    assert [line for line in caplog.messages if "record" in line] == [
        "the record of worker a, which owns shards, was deleted: it counts as ended, and other workers take its shards"
    ]
