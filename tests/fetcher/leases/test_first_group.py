"""Positions that were stored for a group: the workers that join go on from them, and nothing is read twice or skipped."""

import pytest

from recordpublisher.fetcher.leases.group_store import store_as_group
from recordpublisher.fetcher.leases.position_documents import SHARDS_PER_PART
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses

FIRST = StartingPosition.trim_horizon()


def after(sequence):
    return ShardState(FIRST, SequenceNumber(str(sequence)), watermark=sequence)


def test_two_workers_go_on_after_the_stored_positions_and_clean_up():
    async def story():
        group = ElasticProcesses(shards=SHARDS_PER_PART + 4)
        group.send(5)
        await store_as_group(group.store, {f"s/{shard}": after(2) for shard in group_shards(group)})
        processes = await group.join_two()
        expected = {(shard, number) for shard in group_shards(group) for number in (3, 4)}
        await group.wait_until(lambda: len(group.rows) >= len(expected))
        await group.wait_until(lambda: not any("import-" in name for name in group.store.values))
        for process in processes:
            await process.stop()
        return group.rows, expected

    rows, expected = run_virtual(story())
    assert sorted(rows) == sorted(expected)


def test_a_shard_that_ended_is_not_read_again_and_a_child_waits_for_its_other_parent():
    async def story():
        group = ElasticProcesses(shards=2)
        group.send(5)
        child = group.source.add("child", 10, 11, parents=("shard-0", "shard-1")).shard
        for parent in ("shard-0", "shard-1"):
            group.source.close_shard(parent, child)
        states = {
            "s/shard-0": ShardState(FIRST, SequenceNumber("4"), watermark=4, ended=True),
            "s/shard-1": after(2),
            "s/child": ShardState(FIRST, parents=("shard-0", "shard-1"), waiting=True),
        }
        await store_as_group(group.store, states)
        process = await group.join()
        await group.wait_until(lambda: len(group.rows) >= 4)
        await process.stop()
        return group.rows

    assert run_virtual(story()) == [("shard-1", 3), ("shard-1", 4), ("child", 10), ("child", 11)]


def test_positions_are_not_stored_beside_a_group():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: process.shards == {"shard-0"})
        with pytest.raises(StateError, match="a group of workers already"):
            await store_as_group(group.store, {"s/shard-0": after(2)})
        await process.stop()

    run_virtual(story())


def group_shards(group):
    return [scripted.shard.shard_id for scripted in group.source.shards.values()]
