"""CPU per sub-record of de-aggregation, by the kind of KPL aggregate (`make bench` prints it; goal: below 1 us)."""

import asyncio

import pytest

from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange

from benchmarks.reading.aggregates import batch, cost_of

pytestmark = pytest.mark.benchmark

RECORDS, SIZE = 200, 100
WHOLE, HALF = HashRange(), HashRange(0, MAX_HASH_KEY // 2)


def of(sub_records, keys, plain=0):
    return batch(RECORDS, sub_records, keys, SIZE, plain)


@pytest.mark.timeout(300)
def test_cpu_per_sub_record(capsys):
    rows = {
        "1,000 of 50 keys": (of(1_000, 50), WHOLE),
        "1,000 of 50 keys, half of them foreign": (of(1_000, 50), HALF),
        "1,000 of as many keys": (of(1_000, 10**9), WHOLE),
        "1,000 of as many keys, half of them foreign": (of(1_000, 10**9), HALF),
        "10 of 50 keys": (of(10, 50), WHOLE),
        "10 of 50 keys, ten plain records between": (of(10, 50, plain=10), WHOLE),
    }
    with capsys.disabled():
        print(f"\nsub-records of {SIZE} B, us of CPU each, and M a second on one core")
        for name, (records, hash_range) in rows.items():
            cost = asyncio.run(cost_of(records, hash_range))
            print(f"  {name:<45} {cost:5.2f} {1 / cost:5.2f}")
            assert cost > 0
