"""E10: a takeover that crashes is repeated or taken back, and nobody goes on from half of it."""

import pytest

from recordpublisher.fetcher.takeover.to_group import take_over_subtasks
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.static_process import StaticProcess
from fakes.leases.takeovers import (
    FIRST,
    StoppedAtWriteError,
    after_group,
    after_static,
    crash_at_write,
    read_all,
    static,
    take_back,
    written_once,
)


async def goes_on(group, ends_as):
    """The job is started as one kind with a takeover, or as the other: each record is written once."""
    await read_all(group, await (group.join(takeover=True) if ends_as == "ELASTIC" else static(group)))
    return written_once(group)


async def crashed_on_the_way_to_a_group(last, is_before, ends_as):
    group = await after_static(subtasks=2)
    crashed = await crash_at_write(group, last, is_before, lambda: take_over_subtasks(group.store, FIRST))
    return crashed, await goes_on(group, ends_as)


async def crashed_on_the_way_to_subtasks(last, is_before, ends_as):
    group = await after_static(subtasks=2)
    await read_all(group, await group.join(takeover=True))
    crashed = await crash_at_write(group, last, is_before, lambda: take_back(group.store))
    return crashed, await goes_on(group, ends_as)


@pytest.mark.parametrize("ends_as", ["ELASTIC", "STATIC"])
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("way", [crashed_on_the_way_to_a_group, crashed_on_the_way_to_subtasks])
def test_a_takeover_may_crash_at_any_write_and_be_repeated_or_taken_back(way, is_before, ends_as):
    crashes = 0
    for last in range(1, 20):
        crashed, is_once = run_virtual(way(last, is_before, ends_as))
        assert is_once, f"at write {last}"
        crashes += crashed
    assert 4 < crashes < 19


def test_a_subtask_does_not_start_while_a_group_has_begun_to_take_over():
    async def story():
        group = await after_static()
        write = group.store._write

        def without_table(name, value, expected):
            if name == "group/leases":
                raise StoppedAtWriteError
            return write(name, value, expected)

        group.store._write = without_table
        with pytest.raises(StoppedAtWriteError):
            await take_over_subtasks(group.store, FIRST)
        group.store._write = write
        for subtask in (0, 1):  # the one that was taken over, and one that was never there
            with pytest.raises(StateError, match="start once with `--takeover`"):
                await ConditionalStateStore(group.store).open_generation(subtask)

    run_virtual(story())


def test_a_subtask_does_not_start_while_others_have_begun_to_copy_the_positions_of_a_group():
    async def story():
        group = await after_group()
        write = group.store._write

        def closes_the_table(name, value, expected):
            version = write(name, value, expected)
            if name == "group/leases":
                raise StoppedAtWriteError
            return version

        group.store._write = closes_the_table
        with pytest.raises(StoppedAtWriteError):
            await take_back(group.store)
        group.store._write = write
        with pytest.raises(StateError, match="start once with `--takeover`"):
            await StaticProcess(group).start()

    run_virtual(story())
