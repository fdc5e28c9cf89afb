"""The positions of a group of workers, as `recordpublisher lag` reads them beside the running job (E11)."""

import asyncio
from functools import partial

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore
from recordpublisher.fetcher.leases.documents.group_store import PARTS, GroupStore
from recordpublisher.fetcher.leases.position_store import read_parts
from recordpublisher.plugins.lag.job_state import JobPositions, StoreOrGroupPositions, group_snapshots
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses
from fakes.memory_store import MemoryStore
from fakes.shard_entries import START


async def stored_job(group):
    snapshots = await StoreOrGroupPositions(group.store).load()
    return JobPositions.of(snapshots, [scripted.shard for scripted in group.source.shards.values()], START)


def test_each_shard_has_the_position_and_the_name_of_the_worker_that_reads_it():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        group.send(7)
        await group.wait_until_all_is_written()
        await first.fetcher.checkpoint()
        await second.fetcher.checkpoint()
        found = await stored_job(group)
        shards = first.shards, second.shards
        await first.stop()
        await second.stop()
        return found, shards

    found, shards = run_virtual(story())
    assert {str(state.position) for state in found.states.values()} == {"6"}
    of_worker = {
        worker: {key[2:] for key, one in found.workers.items() if one == worker} for worker in found.workers.values()
    }
    assert sorted(of_worker.values(), key=sorted) == sorted(shards, key=sorted)
    assert found.subtasks == {}


def test_a_worker_says_when_its_checkpoint_was():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: bool(process.shards))
        await process.fetcher.checkpoint()
        await asyncio.sleep(60)  # of virtual time: a heartbeat follows
        found = await stored_job(group)
        await process.stop()
        return found.taken_ms

    assert run_virtual(story()).keys() == {"s/shard-0"}


def test_a_shard_that_ended_has_ended_and_its_children_are_read():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        group.source.split("shard-0", "left", "right")
        await group.wait_until(lambda: process.shards == {"left", "right"})
        found = await stored_job(group)
        await process.stop()
        return found

    found = run_virtual(story())
    assert found.states["s/shard-0"].ended
    assert set(found.workers) == {"s/left", "s/right"}


def test_positions_that_are_not_where_they_must_be_are_an_error_that_names_the_shard():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await group.join()
        await group.wait_until(lambda: bool(process.shards))
        await process.kill()
        await group.store.delete(*await group.store.list_names(PARTS))
        documents = GroupStore(group.store, 5)
        await group_snapshots(documents, partial(read_parts, documents))

    with pytest.raises(StateError, match="s/shard-0"):
        run_virtual(story())


def test_a_store_without_a_group_has_the_snapshots_of_subtasks():
    async def story():
        store = SnapshotStore(memory := MemoryStore())
        snapshot = {"version": 2, "generation": 1, "subtask": 0, "parallelism": 1, "pinnedStartMs": None, "shards": {}}
        await store.store(0, await store.open_generation(0), snapshot)
        return await StoreOrGroupPositions(memory).load() == [snapshot]

    assert run_virtual(story())
