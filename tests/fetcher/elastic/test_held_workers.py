"""A worker of a group that is held by alignment learns of the progress of the others within two seconds (E8)."""

import asyncio

import pytest

from recordpublisher.fetcher.monitoring.status_and_warnings import what_blocks
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses

LOOKAHEAD, STEP = 3_000, 2_000
LATENCY = 0.2
"""Of a read of the scripted source."""
AT_ONCE, AFTER_REST = 2.0, 7.0


class Pair:
    """Two processes of a group: the fast one waits for the slow one before each of its records."""

    def __init__(self, seed):
        self.group = ElasticProcesses(shards=2)
        self.group._chance.seed(seed)

    async def start(self):
        self.slow, self.fast = await self.group.join_two(**{"flink.watermark.lookahead.millis": LOOKAHEAD})
        self.slow_shard, self.fast_shard = (
            self.group.source.shards[f"s/{shard}"] for process in (self.slow, self.fast) for shard in process.shards
        )
        self.slow_shard.put(0)
        self.fast_shard.put(0)
        await self.group.wait_until(lambda: len(self.group.rows) == 2)

    async def seconds_until_it_learns(self, step, after):
        """The slow shard reaches `step` after this time. Return how long the fast one waits for that."""
        self.slow_shard.put(step * STEP)
        loop = asyncio.get_running_loop()
        await self.group.wait_until(lambda: (self.slow_shard.shard.shard_id, step * STEP) in self.group.rows)
        began = self.slow.sink.times[-1]
        await self.group.wait_until(
            lambda: (self.fast_shard.shard.shard_id, step * STEP + LOOKAHEAD) in self.group.rows
        )
        learned = loop.time()
        await asyncio.sleep(after)
        return learned - began

    async def stop(self):
        await self.slow.stop()
        await self.fast.stop()


@pytest.mark.parametrize("seed", range(3))
def test_while_it_is_held_it_learns_of_progress_within_two_seconds_and_after_rest_within_seven(seed):
    async def story():
        pair = Pair(seed)
        await pair.start()
        await asyncio.sleep(120)
        for step in range(1, 10):
            pair.fast_shard.put(step * STEP + LOOKAHEAD)
        await asyncio.sleep(seed * 0.2)
        first = await pair.seconds_until_it_learns(1, after=seed / 4)
        later = [await pair.seconds_until_it_learns(step, after=step * 0.37) for step in range(2, 10)]
        await pair.stop()
        return first, later

    first, later = run_virtual(story())
    assert first <= AFTER_REST + LATENCY
    assert max(later) <= AT_ONCE + LATENCY


async def blamed_while_a_shard_is_slow(process, slow_shard):
    """What the worker says that the watermark waits for, while each record of the slow shard raises it a little."""
    blamed = set()
    for step in range(1, 60):
        slow_shard.put(step * 10)
        await asyncio.sleep(0.5)
        if step > 10:
            blamed.add(what_blocks(process.fetcher._view.alignment))
    return blamed


def test_a_worker_that_is_alone_in_its_group_names_its_own_slow_shard():
    """Its own watermark is ahead of that of the group, which it knows from its last heartbeat."""

    async def story():
        group = ElasticProcesses(shards=2)
        process = await group.join(**{"flink.watermark.lookahead.millis": LOOKAHEAD})
        await group.wait_until(lambda: len(process.shards) == 2)
        slow, held = group.source.shards.values()
        slow.put(0)
        held.put(100 * LOOKAHEAD)
        blamed = await blamed_while_a_shard_is_slow(process, slow)
        await process.stop()
        return blamed, slow.shard.key

    blamed, slow = run_virtual(story())
    assert blamed == {f"shard {slow}"}


def test_each_worker_knows_with_whom_the_slow_shard_is():
    async def story():
        pair = Pair(0)
        await pair.start()
        pair.fast_shard.put(100 * LOOKAHEAD)
        await asyncio.sleep(AFTER_REST)
        slow = asyncio.create_task(blamed_while_a_shard_is_slow(pair.slow, pair.slow_shard))
        fast = set()
        while not slow.done():
            await asyncio.sleep(0.5)
            fast.add(what_blocks(pair.fast.fetcher._view.alignment))
        await pair.stop()
        return await slow, fast, pair.slow_shard.shard.key

    slow, fast, key = run_virtual(story())
    assert slow == {f"shard {key}"}
    assert fast == {"a shard of another worker"}


def test_a_group_at_rest_sends_no_more_heartbeats_than_one_without_alignment():
    async def heartbeats(**properties):
        group = ElasticProcesses(shards=2)
        first, second = await group.join_two(**properties)
        group.send()
        await group.wait_until_all_is_written()
        await asyncio.sleep(30)
        before = group.store.writes
        await asyncio.sleep(300)
        written = group.store.writes - before
        await first.stop()
        await second.stop()
        return written

    assert run_virtual(heartbeats(**{"flink.watermark.lookahead.millis": LOOKAHEAD})) <= 2 * 300 / 4 + 10
    assert run_virtual(heartbeats()) <= 2 * 300 / 4 + 10
