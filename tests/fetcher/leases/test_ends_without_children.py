"""A shard whose last read names no children, as with a source that only lists them, and whose reader died after it stored the end."""

import asyncio

from recordpublisher.fetcher.leases.position_documents import StoredPosition
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

from fakes.leases.lease_group import LeaseGroup


class ListedGroup(LeaseGroup):
    """`listed`: the children that a listing shows, with their parents."""

    def __init__(self, shards):
        super().__init__(shards)
        self.listed = {}

    async def _list_shards(self):
        return [*await super()._list_shards(), *(Shard("t", name, parents) for name, parents in self.listed.items())]


def test_the_worker_that_takes_it_over_adds_its_children_with_its_end():  # W5
    """Otherwise nothing holds back the watermark of the group for their records until the next periodic listing."""

    async def story():
        group = ListedGroup(2)
        try:
            for name in "ab":
                group.join(name)
                await asyncio.sleep(30)
            (ended,) = group.readers["a"].positions
            (read,) = group.readers["b"].positions
            state = ShardState(StartingPosition.trim_horizon(), SequenceNumber("7"), watermark=7, ended=True)
            group.readers["a"]._stored = lambda shard: StoredPosition(state)
            group.readers["a"].positions[ended] = group.readers["b"].positions[read] = 7
            group.listed = {"child": (ended.removeprefix("t/"),)}
            await group.workers["a"].checkpoint()
            await group.kill("a")
            group.readers["b"].positions[read] = 50
            await asyncio.sleep(60)
            return group.readers["b"].positions, group.workers["b"].group_watermark
        finally:
            await group.close()

    positions, watermark = run_virtual(story())
    assert "t/child" in positions
    assert watermark == 7
