"""The positions of a group of workers, as `recordpublisher lag` reads them beside the running job (E11)."""

import asyncio
from functools import partial

import pytest

from recordpublisher.fetcher.leases.group_store import PARTS_PREFIX, GroupStore, read_parts
from recordpublisher.plugins.lag.job_state import JobState, JobStateReader, snapshots_of_workers
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ElasticProcesses
from fakes.memory_store import MemoryStore
from fakes.shard_entries import START
from fakes.stored_job import SHARD, snapshot_at, store_alone


async def stored_job(group):
    snapshots = await JobStateReader(group.store).load()
    return JobState.of(snapshots, [scripted.shard for scripted in group.source.shards.values()], START)


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
        await group.store.delete(*await group.store.list_names(PARTS_PREFIX))
        documents = GroupStore(group.store, 5)
        await snapshots_of_workers(documents, partial(read_parts, documents))

    with pytest.raises(StateError, match="s/shard-0"):
        run_virtual(story())


def test_a_job_that_runs_alone_has_the_name_of_its_worker_and_the_time_of_its_checkpoint():
    async def story():
        store = MemoryStore()
        alone = await store_alone(store, {**snapshot_at(7), "takenMs": 50})
        (snapshot,) = await JobStateReader(store).load()
        return alone.name, snapshot

    name, snapshot = run_virtual(story())
    assert (snapshot["worker"], snapshot["takenMs"], snapshot["shards"][SHARD]["position"]) == (name, 50, "7")


def test_a_place_without_a_job_has_no_positions():
    assert run_virtual(JobStateReader(MemoryStore()).load()) == []
