"""The offset of a batch: which task reads which shard, and which batch it follows."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation, Silence
from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.plugins.spark.source.offset_lineage import unread_shard
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard


def planned(shards: int, tasks: int, batch: int = 0) -> BatchOffset:
    entries = [unread_shard(Shard("s", f"shard-{n}"), StartingPosition.trim_horizon()) for n in range(shards)]
    entries = [replace(entry, task=number % tasks) for number, entry in enumerate(entries)]
    return BatchOffset("query", f"plan-{batch}", batch, 0, {entry.key: entry for entry in entries})


def test_a_shard_stays_with_its_task_and_shards_take_turns_to_be_first():
    tasks = [planned(6, 2, batch).tasks() for batch in range(3)]
    names = [[[entry.shard.shard_id for entry in group] for group in groups] for groups in tasks]

    assert {tuple(sorted(first)) for first, _ in names} == {("shard-0", "shard-2", "shard-4")}
    assert sorted(first[0] for first, _ in names) == ["shard-0", "shard-2", "shard-4"]


def test_a_batch_that_is_read_from_the_log_has_the_same_tasks():
    offset = planned(6, 4, batch=3)
    assert BatchOffset.from_json(json.loads(json.dumps(offset.to_json()))).tasks() == offset.tasks()


def test_a_shard_without_a_task_is_not_read():
    offset = planned(2, 2)
    left = replace(offset, shards={**offset.shards, "s/shard-0": replace(offset.shards["s/shard-0"], task=None)})
    assert [[entry.key for entry in group] for group in left.tasks()] == [["s/shard-1"]]


def test_a_batch_follows_the_one_it_was_planned_after():
    first, second, third = (replace(planned(1, 1, batch), after=f"plan-{batch - 1}") for batch in range(1, 4))
    assert second.follows(first)
    assert not third.follows(first)
    assert not second.follows(third)


def test_a_batch_that_waits_follows_itself():
    waiting = replace(planned(1, 1, 4), after="plan-3", waits=2)
    assert waiting.follows(planned(1, 1, 4))
    assert planned(1, 1, 4).follows(planned(1, 1, 4))


def test_the_first_batch_follows_any_start_of_the_query():
    """Each process computes the start anew, and the first one may have had no listing yet."""
    first = replace(planned(1, 1, 1), after="start")
    assert first.follows(BatchOffset.unlisted(0))
    assert first.follows(replace(planned(1, 1, 0), plan="start"))


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
