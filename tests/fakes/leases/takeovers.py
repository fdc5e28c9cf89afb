"""Jobs on virtual time that go over from subtasks to a group of workers, and back (E10)."""

from collections import Counter

from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.takeover.to_subtasks import take_over_group
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing import VirtualClock

from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.leases.static_process import StaticProcess

FIRST = StartingPosition.trim_horizon()


class StoppedAtWriteError(Exception):
    """The process that takes over ends here."""


async def take_back(store):
    await take_over_group(store, LeaseSettings(DURATION), VirtualClock())


async def read_all(group, process):
    group.send(3)
    await group.wait_until_all_is_written()
    await process.stop()


async def after_static(shards=3, subtasks=1):
    """A group of processes whose store has the positions of subtasks that have ended."""
    group = ElasticProcesses(shards=shards)
    group.send(3)
    processes = [await StaticProcess(group, number, subtasks).start() for number in range(subtasks)]
    await group.wait_until_all_is_written()
    for process in processes:
        await process.stop()
    return group


async def after_group(shards=3):
    """A group of processes whose workers have left."""
    group = ElasticProcesses(shards=shards)
    process = await group.join()
    await read_all(group, process)
    return group


def written_once(group):
    return set(Counter(group.rows).values()) == {1} and set(group.rows) == group.sent


async def static(group):
    return await StaticProcess(group, takeover=True).start()


async def crash_at_write(group, last, is_before, take_over):
    """Take over, and end at this write, before it took effect or after it. Returns whether it came to that."""
    write, writes = group.store._write, 0

    def stopping(name, value, expected):
        nonlocal writes
        writes += 1
        if writes == last and is_before:
            raise StoppedAtWriteError
        version = write(name, value, expected)
        if writes == last:
            raise StoppedAtWriteError
        return version

    group.store._write = stopping
    try:
        await take_over()
    except StoppedAtWriteError:
        return True
    finally:
        group.store._write = write
    return False
