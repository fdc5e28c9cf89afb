"""Snapshots from stored positions."""

from msgspec.structs import replace

from recordpublisher.plugins.dashboard.stored_snapshots import job_snapshot
from recordpublisher.plugins.lag.job_snapshot import ShardSnapshot, SubtaskSnapshot

LAG = ShardSnapshot(stream="orders", shard="a", subtask=1, watermark=5_000, unread=True, lag_ms=4_200, is_idle=False)


def snapshot_of(*shards, **more):
    return job_snapshot([*shards], 100_000, **more)


def test_each_reader_has_its_newest_checkpoint_and_an_unknown_health():
    lags = [
        replace(LAG, checkpoint_age_ms=4_000),
        replace(LAG, shard="b", checkpoint_age_ms=3_000),
        replace(LAG, shard="c", subtask=0),
        replace(LAG, shard="d", subtask=None),
        replace(LAG, shard="e", subtask=None, worker="w-1", checkpoint_age_ms=9),
    ]
    assert (snapshot_of(*lags)).subtasks == [
        SubtaskSnapshot(0),
        SubtaskSnapshot(1, checkpoint_age_ms=3_000),
        SubtaskSnapshot(worker="w-1", checkpoint_age_ms=9),
    ]


def test_the_global_watermark_is_the_lowest_of_shards_that_are_not_idle():
    idle = replace(LAG, shard="idle", watermark=1, is_idle=True)
    snapshot = snapshot_of(LAG, idle, replace(LAG, shard="b", watermark=2_000))

    assert snapshot.global_watermark == 2_000
    assert snapshot.alignment == (
        "The lowest watermark is that of b, 3.0 s below the highest; which shards are held is not known from stored positions."
    )


def test_without_positions_neither_watermark_nor_alignment_is_known():
    snapshot = snapshot_of(replace(LAG, watermark=None))

    assert (snapshot.global_watermark, snapshot.alignment) == (None, None)


def test_where_watermarks_wait_for_idle_shards_these_count_too():  # W2
    idle = replace(LAG, shard="idle", watermark=1, is_idle=True)

    assert snapshot_of(LAG, idle, waits_for_idle=True).global_watermark == 1
