"""E10: a job goes over from a fixed number of subtasks to a group of workers in one store, and back: nothing is lost or read twice."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.checkpoints.state_entries import read_entries
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.takeover.to_group import take_over_subtasks
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.leases.static_process import StaticProcess
from fakes.leases.takeovers import (
    FIRST,
    after_group,
    after_static,
    read_all,
    take_back,
    written_once,
)


def test_a_job_goes_to_a_group_and_back_and_there_again_and_writes_each_record_once():
    async def story():
        group = await after_static(subtasks=2)
        for _ in range(2):
            await read_all(group, await group.join(takeover=True))
            await read_all(group, await group.join())
            await read_all(group, await StaticProcess(group, takeover=True).start())
            await read_all(group, await StaticProcess(group).start())
        return written_once(group), sorted(group.store.values)

    is_once, names = run_virtual(story())
    assert is_once
    assert names == ["group/leases", "subtask-0", "subtask-1"]


@pytest.mark.parametrize("given", ["ELASTIC", "STATIC"])
def test_without_being_asked_to_the_other_kind_is_refused_and_told_how(given):
    async def story():
        group = await (after_static() if given == "ELASTIC" else after_group())
        with pytest.raises(StateError, match=rf"which {given} goes on from only .* start once with `--takeover`"):
            await (group.join() if given == "ELASTIC" else StaticProcess(group).start())

    run_virtual(story())


def test_a_subtask_that_still_runs_is_refused_its_next_checkpoint():
    async def story():
        group = ElasticProcesses(shards=2)
        running = await StaticProcess(group).start()
        group.send(3)
        await group.wait_until_all_is_written()
        await running.fetcher.checkpoint()
        process = await group.join(takeover=True)
        with pytest.raises(FencedError, match="a group of workers has taken over"):
            await running.running
        await read_all(group, process)
        return written_once(group)

    assert run_virtual(story())


def test_a_worker_that_lives_is_named_and_keeps_its_shards():
    async def story():
        group = ElasticProcesses(shards=2)
        process = await group.join()
        await group.wait_until(lambda: len(process.shards) == 2)
        name = next(iter((await GroupStore(group.store, 1).read_records()).keys()))
        with pytest.raises(StateError, match=f"worker {name} of the group in memory sends heartbeats"):
            await StaticProcess(group, takeover=True).start()
        await read_all(group, process)
        return written_once(group)

    assert run_virtual(story())


def test_a_worker_that_was_killed_is_sealed_after_the_lease_duration():
    async def story():
        group = ElasticProcesses(shards=2)
        process = await group.join()
        group.send(3)
        await group.wait_until_all_is_written()
        await process.fetcher.checkpoint()
        await process.kill()
        began = asyncio.get_running_loop().time()
        static = await StaticProcess(group, takeover=True).start()
        waited = asyncio.get_running_loop().time() - began
        await read_all(group, static)
        return waited, written_once(group)

    waited, is_once = run_virtual(story())
    assert DURATION <= waited < DURATION * 1.5
    assert is_once


def test_a_worker_that_wakes_afterwards_writes_nothing_and_its_process_ends():
    async def story():
        group = ElasticProcesses(shards=2)
        process = await group.join()
        group.send(3)
        await group.wait_until_all_is_written()
        await process.fetcher.checkpoint()
        process.store.is_cut = True
        static = await StaticProcess(group, takeover=True).start()
        process.store.is_cut = False
        with pytest.raises(StateError, match="STATIC has taken over the positions of this group"):
            await process.running
        await read_all(group, static)
        return written_once(group)

    assert run_virtual(story())


def test_a_shard_that_ended_in_the_group_is_not_read_again_by_subtasks():
    """The older positions of its subtask must be gone, as the group has dropped the shard."""

    async def story():
        group = await after_static(shards=4, subtasks=2)
        process = await group.join(takeover=True)
        await group.wait_until(lambda: len(process.shards) == 4)
        group.send(3)  # the subtasks have not stored these
        for number in range(4):
            child = group.source.add(f"child-{number}", 10, 11, parents=(f"shard-{number}",)).shard
            group.source.close_shard(f"shard-{number}", child)
        group.sent |= {(f"child-{number}", time) for number in range(4) for time in (10, 11)}
        await group.wait_until_all_is_written()
        await group.wait_until(lambda: len(process.shards) == 4)
        await process.stop()
        subtasks = [await StaticProcess(group, number, 2, takeover=True).start() for number in range(2)]
        await asyncio.sleep(30)
        for each in subtasks:
            await each.stop()
        return written_once(group)

    assert run_virtual(story())


def test_a_child_waits_for_its_other_parent_in_both_directions():
    async def story():
        group = ElasticProcesses(shards=2)
        child = group.source.add("child", 10, 11, parents=("shard-0", "shard-1")).shard
        group.source.close_shard("shard-0", child)
        group.source.shards["s/shard-1"].put(1)
        static = await StaticProcess(group).start()
        await asyncio.sleep(30)
        await static.stop()
        process = await group.join(takeover=True)
        await asyncio.sleep(60)
        await process.stop()
        static = await StaticProcess(group, takeover=True).start()
        await asyncio.sleep(30)
        assert group.rows == [("shard-1", 1)]
        group.source.close_shard("shard-1", child)
        await asyncio.sleep(30)
        await static.stop()
        return group.rows

    assert run_virtual(story()) == [("shard-1", 1), ("child", 10), ("child", 11)]


def test_the_numbers_go_on_so_that_no_older_position_counts_as_newer():
    async def story():
        group = await after_static()
        for _ in range(4):
            await (await StaticProcess(group).start()).stop()
        newest = (await read_entries(group.store))["subtask-0"].entry.generation
        await take_over_subtasks(group.store, FIRST)
        group_version = (await GroupStore(group.store, 1).read_table()).document.version
        await take_back(group.store)
        closed_version = (await GroupStore(group.store, 1).read_table()).document.version
        generation = await ConditionalStateStore(group.store).open_generation(0)
        return newest, group_version, closed_version, generation

    numbers = run_virtual(story())
    assert list(numbers) == sorted(set(numbers))


def test_a_start_that_was_pinned_to_a_time_is_that_of_the_group():
    async def story():
        group = ElasticProcesses(shards=1)
        states = ConditionalStateStore(group.store)
        generation = await states.open_generation(0)
        await states.store(0, generation, snapshot_to_json({"s/shard-0": ShardState(FIRST)}, 5_000, generation, 0, 1))
        await take_over_subtasks(group.store, FIRST)
        table = (await GroupStore(group.store, 1).read_table()).document
        await take_back(group.store)
        return table.start.timestamp_ms, [each["pinnedStartMs"] for each in await states.load()]

    assert run_virtual(story()) == (5_000, [5_000])


def test_positions_that_a_sink_keeps_are_not_taken_for_missing():
    async def story():
        group = await after_group()
        documents = GroupStore(group.store, 1)
        for name in [name for name in group.store.values if name.startswith("group/positions/")]:
            await group.store.delete(name)
        with pytest.raises(StateError, match="a sink that keeps positions has it"):
            await take_back(group.store)
        assert not (await documents.read_table()).document.is_closed

    run_virtual(story())
