"""Snapshots from stored positions."""

from dataclasses import replace

from recordpublisher.plugins.dashboard.snapshot import SubtaskSnapshot
from recordpublisher.plugins.dashboard.stored_snapshot import StoredSnapshots
from recordpublisher.plugins.lag.shard_lag import ShardLag

from fakes.shard_entries import StoppedClock

LAG = ShardLag("a", 1, "7", 5_000, True, 4_200, False, None, 9_000)


async def snapshot_of(*lags):
    async def read():
        return [*lags]

    return await StoredSnapshots("orders", read, StoppedClock(100.0)).snapshot()


async def test_a_shard_has_what_positions_and_tips_tell():
    snapshot = await snapshot_of(replace(LAG, records_per_second=3.0, bytes_per_second=30.0))

    (shard,) = snapshot.shards
    assert (snapshot.time_ms, shard.stream, shard.shard, shard.subtask) == (100_000, "orders", "a", 1)
    assert (shard.lag_ms, shard.loss_ms, shard.watermark, shard.is_idle, shard.alarm) == (
        4_200,
        9_000,
        5_000,
        False,
        False,
    )
    assert (shard.records_per_second, shard.bytes_per_second) == (3.0, 30.0)
    assert (shard.is_held, shard.stage) == (None, None)


async def test_of_a_group_a_shard_has_its_worker_and_of_any_job_its_parents():
    (shard,) = (await snapshot_of(replace(LAG, subtask=None, worker="w-1", parents=("p",)))).shards

    assert (shard.subtask, shard.worker, shard.parents) == (None, "w-1", ["p"])


async def test_each_reader_has_its_newest_checkpoint_and_an_unknown_health():
    lags = [
        replace(LAG, checkpoint_age_ms=4_000),
        replace(LAG, shard="b", checkpoint_age_ms=3_000),
        replace(LAG, shard="c", subtask=0),
        replace(LAG, shard="d", subtask=None),
        replace(LAG, shard="e", subtask=None, worker="w-1", checkpoint_age_ms=9),
    ]
    assert (await snapshot_of(*lags)).subtasks == [
        SubtaskSnapshot(0),
        SubtaskSnapshot(1, checkpoint_age_ms=3_000),
        SubtaskSnapshot(worker="w-1", checkpoint_age_ms=9),
    ]


async def test_the_global_watermark_is_the_lowest_of_shards_that_are_not_idle():
    idle = replace(LAG, shard="idle", watermark=1, is_idle=True)
    snapshot = await snapshot_of(LAG, idle, replace(LAG, shard="b", watermark=2_000))

    assert snapshot.global_watermark == 2_000
    assert snapshot.alignment == (
        "The lowest watermark is that of b, 3.0 s below the highest; which shards are held is not known from stored positions."
    )


async def test_without_positions_neither_watermark_nor_alignment_is_known():
    snapshot = await snapshot_of(replace(LAG, watermark=None))

    assert (snapshot.global_watermark, snapshot.alignment) == (None, None)
