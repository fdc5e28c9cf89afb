"""How much of a shard of 1,000 records/s the sink gets beside other producers, and while records are refused at random (K1, K2).

On virtual time, with the token bucket of the embedded endpoint.
"""

import asyncio
import random

import pytest

from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import THROTTLED, FakeKinesis, a_sink

RATE = 1_000
WARM_UP_SECONDS = 12
RECORDS_PER_CALL = 500


def taken_by_shard(fake: FakeKinesis, records: int) -> int:
    """Put this many records into the only shard; returns how many it took, by the same token bucket as the sink's records."""
    shard = fake.shards["s0"]
    if not shard.admits(fake.rate, asyncio.get_running_loop().time()):
        return 0
    more = min(records - 1, int(shard.level))
    shard.level -= more
    return 1 + more


async def produce_without_backing_off(fake: FakeKinesis, seed: int, pause_seconds: float = 0.1) -> None:
    """A boto3 loop: full calls, refused records again after a fixed pause, for ever."""
    rng = random.Random(seed)
    while True:
        await asyncio.sleep(fake.latency * rng.uniform(0.5, 1.5))
        if taken_by_shard(fake, RECORDS_PER_CALL) < RECORDS_PER_CALL:
            await asyncio.sleep(pause_seconds * rng.uniform(0.9, 1.1))


class Share:
    """What the first sink got of the shard: records a second, and the share of its records that were refused."""

    def __init__(self, before, after, seconds):
        taken, refused = (after[name] - before[name] for name in ("kinesisRecords", "throttles"))
        self.per_second = taken / seconds
        self.refused = refused / (taken + refused)


def share_of_sink(*, ordering="NONE", beside=0, sinks=1, keys=500, refused=0.0, rate=RATE, seconds=15, seed=1):
    async def write(sink, number):
        count = 0
        while True:
            await sink.put(bytes(100), f"{number}-{count % keys}")
            count += 1

    async def job():
        random.seed(seed)  # for the backoff
        chance = random.Random(seed)
        fake = FakeKinesis(seed=seed)
        fake.rate, fake.latency = rate, 0.01
        fake.refuse = lambda entry: THROTTLED if refused and chance.random() < refused else None
        tasks = [asyncio.create_task(produce_without_backing_off(fake, n)) for n in range(beside)]
        opened = [a_sink(fake, queue_limit=2_000, ordering=ordering) for _ in range(sinks)]
        for sink in opened:
            await sink.__aenter__()
        tasks += [asyncio.create_task(write(sink, number)) for number, sink in enumerate(opened)]
        await asyncio.sleep(WARM_UP_SECONDS)
        before = opened[0].metrics()
        await asyncio.sleep(seconds)
        after = opened[0].metrics()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        fake.rate, fake.refuse = None, lambda entry: None
        for sink in opened:
            await sink.close()
        return Share(before, after, seconds)

    return run_virtual(job())


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
@pytest.mark.parametrize("others", [1, 3, 8])
def test_beside_producers_that_do_not_back_off_it_gets_at_least_60_percent_of_a_fair_share(others, ordering):
    share = share_of_sink(ordering=ordering, beside=others)
    assert share.per_second >= 0.6 * RATE / (others + 1)
    assert share.refused < 0.35, "it does not win by sending far more than is taken"


@pytest.mark.slow
@pytest.mark.parametrize("others", [1, 3])
def test_beside_producers_that_back_off_it_gets_80_to_110_percent_of_a_fair_share(others):
    """Other sinks of this kind. The mean of three runs: each swings around the fair share."""
    shares = [share_of_sink(sinks=others + 1, seconds=30, seed=seed).per_second for seed in (1, 2, 3)]
    assert 0.8 <= sum(shares) / 3 / (RATE / (others + 1)) <= 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("ordering", "at_least"), [("NONE", 850), ("PER_KEY", 600)])
def test_records_refused_at_random_do_not_lower_the_rate(ordering, at_least):
    share = share_of_sink(ordering=ordering, keys=1_000, refused=0.05)
    assert share.per_second >= at_least


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_alone_it_uses_the_whole_shard_and_nothing_is_refused(ordering):
    share = share_of_sink(ordering=ordering)
    assert share.per_second >= 0.98 * RATE
    assert share.refused == 0


def test_alone_on_a_shard_with_half_the_capacity_at_most_a_tenth_is_refused():
    share = share_of_sink(rate=500)
    assert share.per_second >= 0.9 * 500
    assert share.refused <= 0.1
