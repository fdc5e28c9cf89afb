"""CPU per sub-record of taking KPL aggregates apart, by the kind of aggregate (`make bench` prints it; wanted: below 1 us)."""

import asyncio
import time

import pytest
from kpl import aggregate

from recordpublisher.publishers.deaggregation import Deaggregator
from recordpublisher.publishers.metrics import ShardMetrics
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

pytestmark = pytest.mark.benchmark

ROUNDS, RECORDS, SIZE = 7, 200, 100
START = StartingPosition.trim_horizon()
WHOLE, HALF = HashRange(), HashRange(0, MAX_HASH_KEY // 2)


def batch(sub_records, keys, plain=0):
    """Records of one read: aggregates over so many partition keys, with plain records between them."""
    made = []
    for number in range(RECORDS):
        parts = [(f"key-{(number * sub_records + part) % keys}", bytes(SIZE)) for part in range(sub_records)]
        made.append(UserRecord(aggregate(*parts), str(number), 1.0, "outer"))
        made += [UserRecord(bytes(SIZE), str(number), 1.0, "plain")] * plain
    return made


async def cost_of(records, hash_range):
    """us of CPU a sub-record, the best of the rounds."""
    deaggregator = Deaggregator(Shard("s", "0", hash_range=hash_range), ShardMetrics())
    best, count = (
        float("inf"),
        sum(1 for _ in await Deaggregator(Shard("s", "0"), ShardMetrics()).user_records(records, START)),
    )
    for _ in range(ROUNDS):
        began = time.process_time()
        await deaggregator.user_records(records, START)
        best = min(best, time.process_time() - began)
    return best / count * 1e6


@pytest.mark.timeout(300)
def test_cpu_per_sub_record(capsys):
    rows = {
        "1,000 of 50 keys": (batch(1_000, 50), WHOLE),
        "1,000 of 50 keys, half of them foreign": (batch(1_000, 50), HALF),
        "1,000 of as many keys": (batch(1_000, 10**9), WHOLE),
        "1,000 of as many keys, half of them foreign": (batch(1_000, 10**9), HALF),
        "10 of 50 keys": (batch(10, 50), WHOLE),
        "10 of 50 keys, ten plain records between": (batch(10, 50, plain=10), WHOLE),
    }
    with capsys.disabled():
        print(f"\nsub-records of {SIZE} B, us of CPU each, and M a second on one core")
        for name, (records, hash_range) in rows.items():
            cost = asyncio.run(cost_of(records, hash_range))
            print(f"  {name:<45} {cost:5.2f} {1 / cost:5.2f}")
            assert cost > 0
