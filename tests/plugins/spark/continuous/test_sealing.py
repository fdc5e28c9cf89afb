"""A new start ends the lanes of the one before for good, however long it sleeps between its steps."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.manifest import Kind, Manifest
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import Fetcher, MemoryObjects, Query, opened

SHARD = Shard("s", "a")


class SleepsBeforeItSeals(MemoryObjects):
    """The store as the new start sees it: life goes on while it is about to put its first seal."""

    def __init__(self, store: MemoryObjects, meanwhile) -> None:
        super().__init__()
        self.content = store.content
        self._meanwhile = meanwhile

    async def put_if_absent(self, name, content):
        is_seal = name.startswith("manifests/") and Manifest.from_bytes(content).kind is Kind.SEALED
        if is_seal and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return await super().put_if_absent(name, content)


async def test_s6_a_start_that_slept_until_the_place_of_its_seal_was_purged_seals_the_end_all_the_same():
    """Otherwise the old lanes read on, and once they end the query waits for ever for more of theirs."""
    store = MemoryObjects()
    old = Fetcher(store, await opened(store, 1), 0, [SHARD])
    await old.open()
    query = Query(store, retain=1)
    await query.start()

    async def life_goes_on():
        for records in range(1, 7):
            await old.read_all(records)
            await query.run_all()

    generation = await opened(SleepsBeforeItSeals(store, life_goes_on), 1)
    with pytest.raises(FencedError):
        await old.read_all(7)
    new = Fetcher(store, generation, 0, [SHARD])
    await new.open()
    await new.read_all(8)
    await query.run_all()
    assert query.rows("a") == list(range(8))
