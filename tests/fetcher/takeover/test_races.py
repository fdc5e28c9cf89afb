"""E10: takeovers and starts at the same time: one kind owns the positions in the end."""

import asyncio

import pytest

from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.takeover.to_group import take_over_subtasks
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.leases.elastic_processes import DURATION
from fakes.leases.static_process import StaticProcess
from fakes.leases.takeovers import (
    FIRST,
    after_group,
    after_static,
    crash_at_write,
    read_all,
    static,
    take_back,
    written_once,
)


def test_several_processes_take_over_at_once_in_both_directions():
    async def story():
        group = await after_static(shards=4, subtasks=2)
        processes = await asyncio.gather(*(group.join(takeover=True) for _ in range(3)))
        group.send(3)
        await group.wait_until_all_is_written()
        for process in processes:
            await process.stop()
        subtasks = [StaticProcess(group, number, 2, takeover=True) for number in range(2)]
        await asyncio.gather(*(each.start() for each in subtasks))
        group.send(3)
        await group.wait_until_all_is_written()
        for process in subtasks:
            await process.stop()
        return written_once(group)

    assert run_virtual(story())


def test_subtasks_that_begin_while_a_group_takes_over_are_stopped_or_refused():
    """A new subtask has no entry that could be stopped: it must see the others', or be seen."""

    async def begins_at(reads, is_after):
        group = await after_static()
        listed, count, outcome = group.store.list, 0, []

        async def begin():
            outcome.append("begun")
            states = ConditionalStateStore(group.store)
            try:
                outcome.append((states, await states.open_generation(1)))
            except StateError:
                outcome.append("refused")

        async def listing(prefix, *, consistent=True):
            nonlocal count
            count += prefix == "subtask-"
            is_now = count == reads and not outcome
            found = await listed(prefix, consistent=consistent) if is_after else None
            if is_now:
                await begin()
            return await listed(prefix, consistent=consistent) if found is None else found

        group.store.list = listing
        await take_over_subtasks(group.store, FIRST)
        group.store.list = listed
        if outcome[1:] == ["refused"] or not outcome:
            return outcome
        states, generation = outcome[1]
        with pytest.raises(FencedError):
            await states.store(1, generation, {"late": True})
        return ["fenced"]

    for is_after in (False, True):
        outcomes = [run_virtual(begins_at(reads, is_after)) for reads in (1, 2, 3)]
        assert outcomes == [["fenced"], ["begun", "refused"], []]


def test_subtasks_that_begin_while_a_group_writes_its_table_are_refused():
    """Between the first look of a start and its write, a group takes over everything."""

    async def story():
        group = await after_static()
        states = ConditionalStateStore(group.store)
        put = group.store.put_if_absent

        async def after_takeover(name, value):
            if name == "subtask-7":
                group.store.put_if_absent = put
                await take_over_subtasks(group.store, FIRST)
            return await put(name, value)

        group.store.put_if_absent = after_takeover
        with pytest.raises(StateError, match="start once with `--takeover`"):
            await states.open_generation(7)

    run_virtual(story())


def test_a_group_that_takes_over_while_a_start_fences_former_subtasks_keeps_what_it_took():
    """The start has its generation already. It must not write to an entry that the group has taken."""

    async def story():
        group = await after_static()
        states = ConditionalStateStore(group.store)
        await states.open_generation(0)
        replace = group.store.compare_and_set

        async def after_takeover(name, value, version):
            group.store.compare_and_set = replace
            await take_over_subtasks(group.store, FIRST)
            return await replace(name, value, version)

        group.store.compare_and_set = after_takeover
        with pytest.raises(StateError, match="start once with `--takeover`"):
            await states.fence_subtasks_from(0)
        await read_all(group, await group.join())
        return written_once(group)

    assert run_virtual(story())


def test_two_takeovers_in_opposite_directions_end_with_one_owner():
    """A group that has stopped the subtasks is overtaken by a subtask: its table is refused, and it begins again."""

    async def story():
        group = await after_static()
        put, overtaken = group.store.put_if_absent, []

        async def overtake(name, value):
            if name == "group/leases" and not overtaken:
                overtaken.append(True)
                states = ConditionalStateStore(group.store, LeaseSettings(DURATION), VirtualClock())
                overtaken.append((states, await states.open_generation(0)))
            return await put(name, value)

        group.store.put_if_absent = overtake
        await take_over_subtasks(group.store, FIRST)
        process = await group.join()
        states, generation = overtaken[1]
        with pytest.raises(FencedError):
            await states.store(0, generation, {"late": True})
        await read_all(group, process)
        return written_once(group)

    assert run_virtual(story())


def test_a_group_that_begins_while_entries_are_given_back_marks_them_anew():
    """The marks that it finds are about to be removed: with them alone, both kinds would go on."""

    async def story():
        group = await after_static()
        assert await crash_at_write(group, 1, False, lambda: take_over_subtasks(group.store, FIRST))
        write, reached, go_on, late = group.store.compare_and_set, asyncio.Event(), asyncio.Event(), []

        async def interleaved(name, value, expected):
            if name == "subtask-0" and not late:  # about to give the entry back
                late.append(asyncio.create_task(take_over_subtasks(group.store, FIRST)))
                await reached.wait()
            elif name == "group/leases" and not reached.is_set():  # about to write the table of the group
                reached.set()
                await go_on.wait()
            return await write(name, value, expected)

        group.store.compare_and_set = interleaved
        states = ConditionalStateStore(group.store, LeaseSettings(DURATION), VirtualClock())
        generation = await states.open_generation(0)
        go_on.set()
        await late[0]
        with pytest.raises(FencedError):
            await states.store(0, generation, {"late": True})

    run_virtual(story())


def test_a_subtask_that_copies_positions_slowly_does_not_replace_newer_ones():
    async def story():
        group = await after_group()
        listed = group.store.list

        async def slow(prefix, *, consistent=True):
            if prefix == "subtask-":
                group.store.list = listed
                await read_all(group, await static(group))
            return await listed(prefix, consistent=consistent)

        group.store.list = slow
        await take_back(group.store)
        await read_all(group, await StaticProcess(group).start())
        return written_once(group)

    assert run_virtual(story())
