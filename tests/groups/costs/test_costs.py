"""E2: what a group of ten workers with 1,000 shards costs in DynamoDB and in S3, counted on virtual time."""

import asyncio
import math
from collections import Counter

import pytest

from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.testing import run_virtual

from fakes.leases.lease_group import CountingStore, LeaseGroup

pytestmark = pytest.mark.slow
WORKERS, SHARDS, SECONDS = 10, 1_000, 300
CHECKPOINT_SECONDS = 10
"""The default of flink.state.checkpoint.interval."""
SEQUENCE_NUMBER = 10**55
"""As long as those of Kinesis."""
ITEM_BYTES = 100
"""Of the key, the version and the attribute names, which DynamoDB counts, too; more than there are."""


class BilledStore(CountingStore):
    """Counts what DynamoDB bills: writes by the KB, reads by 4 KB, half for those that may be slightly old; and the calls of S3."""

    def __init__(self):
        super().__init__()
        self.units = Counter()

    async def get(self, name):
        found = await super().get(name)
        self.units.update(read=max(1, math.ceil(_size(found) / 4096)), s3_get=1)
        return found

    async def list(self, prefix, *, consistent=True):
        found = await super().list(prefix, consistent=consistent)
        read = max(1, math.ceil(sum(map(_size, found.values())) / 4096)) * (1 if consistent else 0.5)
        self.units.update(read=read, s3_list=1, s3_get=len(found))
        return found

    def _write(self, name, value, expected):
        self.units.update(write=math.ceil((len(value) + ITEM_BYTES) / 1024), s3_put=1)
        return super()._write(name, value, expected)


def _size(found):
    return 0 if found is None else len(found.value) + ITEM_BYTES


def units_per_second(shards_per_part, is_loaded):
    """Of a group that has settled."""

    async def story():
        group = LeaseGroup(SHARDS, LeaseSettings(shards_per_part=shards_per_part))
        group.store = BilledStore()
        for number in range(WORKERS):
            group.join(f"worker-{number}")
        await asyncio.sleep(120)
        assert {len(owned) for owned in group.owned().values()} == {SHARDS // WORKERS}
        for name, worker in group.workers.items():
            group.readers[name].tip_ms = 1000 * round(asyncio.get_running_loop().time())
            await worker.checkpoint()
        group.store.units.clear()
        for round_ in range(SECONDS // CHECKPOINT_SECONDS):
            for name, worker in group.workers.items():
                group.readers[name].tip_ms = 1000 * round(asyncio.get_running_loop().time())
                if is_loaded:
                    readers = group.readers[name]
                    readers.positions = dict.fromkeys(readers.positions, SEQUENCE_NUMBER + round_)
                await worker.checkpoint()
            await asyncio.sleep(CHECKPOINT_SECONDS - WORKERS * 0.3)
        units = {kind: count / SECONDS for kind, count in group.store.units.items()}
        await group.close()
        return units

    return run_virtual(story())


def test_at_rest_dynamodb_bills_three_write_and_five_read_units_a_second_at_most():
    units = units_per_second(shards_per_part=16, is_loaded=False)
    assert units["write"] <= 3
    assert units["read"] <= 5


def test_under_load_dynamodb_bills_less_than_a_third_of_a_write_for_each_shard_and_checkpoint():
    units = units_per_second(shards_per_part=16, is_loaded=True)
    assert units["write"] <= 3 + SHARDS / CHECKPOINT_SECONDS / 3


@pytest.mark.parametrize("is_loaded", [False, True])
def test_s3_has_two_or_three_writes_and_listings_a_second_and_reads_every_record_at_each_look(is_loaded):
    units = units_per_second(shards_per_part=SHARDS, is_loaded=is_loaded)
    assert units["s3_put"] <= (2.5 if not is_loaded else 4)
    assert units["s3_list"] <= 3
    assert units["s3_get"] <= 31
