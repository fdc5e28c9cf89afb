"""How the shards of a batch are divided among its tasks."""

from __future__ import annotations

import pickle
from dataclasses import replace

from recordpublisher.fetcher.pipeline.shard_observation import ShardObservation, Silence
from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.plugins.spark.source.reshards import unread_shard
from recordpublisher.plugins.spark.source.shard_grouping import task_groups
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard


def planned(shards: int, tasks: int) -> BatchOffset:
    entries = [unread_shard(Shard("s", f"shard-{n}"), StartingPosition.trim_horizon()) for n in range(shards)]
    return BatchOffset("query", "plan", 0, 0, {entry.key: entry for entry in entries}, tasks=tasks)


def test_a_shard_stays_with_its_task_and_shards_take_turns_to_be_first():
    offsets = [replace(planned(6, 2), batch=batch) for batch in range(3)]
    grouped = [[[entry.shard.shard_id for entry in group] for group in task_groups(offset)] for offset in offsets]

    assert {tuple(sorted(first)) for first, _ in grouped} == {("shard-0", "shard-2", "shard-4")}
    assert sorted(first[0] for first, _ in grouped) == ["shard-0", "shard-2", "shard-4"]
    assert grouped[0] == [[entry.shard.shard_id for entry in group] for group in task_groups(offsets[0])]


def test_an_entry_is_pickled_without_loss():
    (entry,) = planned(1, 1).shards.values()
    moved = replace(
        entry,
        records=3,
        seen=ShardObservation(next_watermark=-5),
        silence=Silence(7),
        state=replace(entry.state, watermark=0, arrival_ms=9),
    )

    assert pickle.loads(pickle.dumps((entry, moved))) == (entry, moved)
