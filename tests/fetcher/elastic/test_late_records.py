"""E8: records that are late because a worker was sealed are counted and written; those of a shard that moves in order are not late.

W12: one that is too far behind the most advanced shard of the group is not waited for, whichever process has that one.
"""

import asyncio

from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses

NEVER = 3_600_000


def late(process):
    metrics = process.fetcher.metrics()["worker"]
    return metrics["lateAfterTakeover"], metrics["lateAfterIdle"]


def late_after(end_first, **properties):
    """Two processes write 10 records of each of two shards, one of them ends; what the other one counts."""

    async def story():
        group = ElasticProcesses(shards=2)
        first, second = await group.join_two(**properties)
        (moved,) = first.shards
        for _ in range(2):
            group.send()
            await group.wait_until_all_is_written()
            await asyncio.sleep(DURATION)  # heartbeats and looks: the watermark of the group has risen
        assert second.fetcher.metrics()["worker"]["globalWatermark"] == 9
        await end_first(first)
        await group.wait_until(lambda: moved in second.shards)
        await asyncio.sleep(DURATION)
        group.send()
        await group.wait_until_all_is_written()
        counted = late(second), second.fetcher.metrics()["shards"][f"s/{moved}"]["lateAfterTakeover"]
        await second.stop()
        return counted, group.rows.count((moved, 0))

    return run_virtual(story())


def test_what_a_killed_worker_had_not_stored_is_late_and_written_again():
    counted, written = late_after(lambda first: first.kill(), **{"flink.state.checkpoint.interval": NEVER})
    assert written == 2
    assert counted == ((9, 0), 9)  # the record at the watermark is not late


def test_a_shard_that_moves_with_its_last_position_has_no_late_record():
    counted, written = late_after(lambda first: first.stop())
    assert written == 1
    assert counted == ((0, 0), 0)


def test_a_shard_that_was_idle_when_its_worker_died_is_late_after_idleness():
    async def story():
        group = ElasticProcesses(shards=2)
        idle = {"flink.shard.idle.interval": 10_000}
        first, second = await group.join_two(**idle)
        moved, kept = (next(iter(each.shards)) for each in (first, second))
        source = group.source.shards
        source[f"s/{moved}"].put(0)
        for time in range(20):  # the one that moves is idle, and stored as such
            source[f"s/{kept}"].put(time)
            await asyncio.sleep(3)
        assert second.fetcher.metrics()["worker"]["globalWatermark"] > 10
        await first.kill()
        await group.wait_until(lambda: moved in second.shards)
        source[f"s/{moved}"].put(3, 4)
        await group.wait_until(lambda: (moved, 4) in group.rows)
        counted = late(second)
        await second.stop()
        return counted

    assert run_virtual(story()) == (0, 2)


DAY = 86_400_000
ALIGNED = {"flink.watermark.lookahead.millis": 5_000, "flink.watermark.alignment.max.lag": DAY}


def test_a_shard_of_another_process_that_is_days_behind_holds_nobody():
    async def story():
        group = ElasticProcesses(shards=2)
        await group.join_two(**ALIGNED)
        behind, ahead = group.source.shards.values()
        behind.put(*range(1_000))
        ahead.put(*range(3 * DAY, 3 * DAY + 10))
        rows = {(ahead.shard.shard_id, time) for time in ahead.times}
        await group.wait_until(lambda: rows <= set(group.rows), seconds=120)

    run_virtual(story())
