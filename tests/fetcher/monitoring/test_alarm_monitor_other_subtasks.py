"""A2 across subtasks: the shards of others are monitored by what their owners store."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_store import SubtaskCheckpoints
from recordpublisher.publishers.errors import StateError

from fakes.scripted_source import ScriptedSource
from fakes.watched_fetcher import INTERVAL, Stored, Tips, alarms_of, unread


def others(source, stored, during=None, tips=None, subtask=0, checkpoint_ms=1_000):
    """The alarms of one of two subtasks. Shard a belongs to the first, b to the second, which does not run."""

    async def run(fetcher):
        fetcher._dependencies.tracker._group.join(1, 0)
        if stored:
            stored.snapshots[1] = {"version": 2, "generation": 1, "shards": {"s/b": {"start": "TRIM_HORIZON"}}}
        await during(fetcher) if during else None

    return alarms_of(
        source,
        properties={**INTERVAL, "flink.state.checkpoint.interval": checkpoint_ms},
        during=run,
        tip=tips or Tips("b"),
        parallelism=2,
        subtask=subtask,
        assigner=lambda shard, _: int(shard.shard_id == "b"),
        checkpoints=SubtaskCheckpoints(stored, subtask, 2) if stored else None,
    )


def two_shards():
    source = ScriptedSource()
    source.add("a")
    source.add("b")
    return source


def test_the_monitor_raises_an_alarm_for_a_shard_whose_owner_stores_no_progress():
    assert unread(others(two_shards(), Stored())) == [("s/b", "its owner, subtask 1, stores no progress")]


def test_a_shard_whose_owner_stores_progress_raises_no_alarm():
    stored = Stored()

    async def advances(fetcher):
        for number in range(30):
            stored.snapshots[1] = {
                "version": 2,
                "generation": 1,
                "shards": {"s/b": {"start": "TRIM_HORIZON", "position": str(number)}},
            }
            await asyncio.sleep(1)
        stored.snapshots.clear()
        fetcher.stop()

    assert others(two_shards(), stored, during=advances) == []


@pytest.mark.parametrize("checkpoint_ms", [-1, 6_000])
def test_positions_that_are_stored_too_rarely_are_not_judged(checkpoint_ms):
    assert others(two_shards(), Stored(), checkpoint_ms=checkpoint_ms) == []


def test_the_store_is_read_four_times_an_interval():
    stored, loads = Stored(), []
    load = stored.load

    async def counted():
        loads.append(1)
        return await load()

    async def counts(fetcher):
        stored.load = counted

    others(two_shards(), stored, during=counts)

    assert 10 <= len(loads) <= 17  # every 2.5 s of 40 s


def test_a_child_that_waits_for_others_is_not_judged_without_a_store():  # S2
    source = ScriptedSource()
    source.add("b")
    source.split("b", "c", "d")

    assert others(source, None, tips=Tips("b", "c", "d")) == []


def test_without_a_store_shards_of_others_are_not_judged():
    tips = Tips("b")

    assert others(two_shards(), None, tips=tips) == []
    assert tips.requested == []


def test_a_store_that_cannot_be_read_does_not_end_the_job():
    stored = Stored()

    async def breaks(fetcher):
        stored.failure = StateError("torn")

    assert others(two_shards(), stored, during=breaks) == []


def test_a_child_whose_parent_another_subtask_reads_raises_no_alarm():  # S2
    source, stored = ScriptedSource(), Stored()
    parent = source.add("b")
    source.split("b", "c", "d")
    assert parent.shard.shard_id == "b"

    async def parent_is_read(fetcher):
        for number in range(30):
            shards = {"s/b": {"start": "TRIM_HORIZON", "position": str(number)}}
            stored.snapshots[1] = {"version": 2, "generation": 1, "shards": shards}
            await asyncio.sleep(1)
        fetcher.stop()

    assert others(source, stored, during=parent_is_read, tips=Tips("b", "c", "d")) == []
