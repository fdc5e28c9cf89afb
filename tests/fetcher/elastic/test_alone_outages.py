"""A job that runs alone reads and writes on through an outage of its store, for each kind of sink."""

import asyncio

import pytest

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.commits.committing_sink import Table, TableSink
from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import ConnectedStore, ElasticProcesses
from fakes.memory_store import MemoryStore

OUTAGE_SECONDS = 600


class TimedRows(TableSink):
    """A sink that commits, whose rows are shards and event times."""

    async def write(self, batch):
        self.waiting += [(batch.shard.key, (batch.shard.shard_id, time)) for time in batch.event_times]


async def in_an_outage(group, process, rows, stores):
    """Cut the stores off for ten minutes, in which records arrive. Return how many of the records were visible at its end."""
    group.send()
    await group.wait_until(lambda: group.sent <= set(rows))
    await process.fetcher.checkpoint()
    for store in stores:
        store.is_cut = True
    for _ in range(OUTAGE_SECONDS // 60):
        group.send()
        await asyncio.sleep(60)
    visible = group.sent <= set(rows)
    assert not process.running.done()
    for store in stores:
        store.is_cut = False
    return visible


def repeated(rows):
    return len(rows) - len(set(rows))


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_at_least_once_sink_is_written_to_and_after_the_outage_nothing_is_repeated(is_killed):
    async def story():
        group = ElasticProcesses(shards=2)
        process = await AloneProcess(group).start()
        visible = await in_an_outage(group, process, group.rows, [process.store])
        await asyncio.sleep(6)  # a checkpoint
        await (process.kill() if is_killed else process.stop())
        second = await AloneProcess(group).start()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return visible, repeated(group.rows)

    assert run_virtual(story()) == (True, 0)


def test_rows_with_their_positions_are_committed_while_only_the_store_of_the_table_is_away():
    async def story():
        group, table, entries = ElasticProcesses(shards=2), Table(), MemoryStore()
        process = await AloneProcess(group, TimedRows(table, entries)).start()
        visible = await in_an_outage(group, process, table.rows, [process.store])
        await process.kill()
        second = await AloneProcess(group, TimedRows(table, entries)).start()
        group.send()
        await group.wait_until(lambda: group.sent <= set(table.rows))
        await second.stop()
        return visible, repeated(table.rows)

    assert run_virtual(story()) == (True, 0)


@pytest.mark.parametrize("has_entries", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_commits_wait_for_the_place_of_the_positions_and_become_visible_once_after_it(has_entries, is_killed):
    async def story():
        group, table = ElasticProcesses(shards=2), Table()
        shared = MemoryStore()
        entries = ConnectedStore(shared) if has_entries else None
        process = await AloneProcess(group, TimedRows(table, entries)).start()
        stores = [process.store, *([entries] if has_entries else [])]
        visible = await in_an_outage(group, process, table.rows, stores)
        if is_killed:
            await process.kill()
            process = await AloneProcess(
                group, TimedRows(table, ConnectedStore(shared) if has_entries else None)
            ).start()
        group.send()
        await group.wait_until(lambda: group.sent <= set(table.rows))
        await process.stop()
        return visible, repeated(table.rows)

    assert run_virtual(story()) == (False, 0)


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_process_that_was_replaced_in_the_outage_commits_nothing_more(has_rows):
    async def story():
        group, table, entries = ElasticProcesses(shards=2), Table(), MemoryStore()

        def sink():
            return TimedRows(table, entries if has_rows else None)

        first = await AloneProcess(group, sink()).start()
        group.send()
        await group.wait_until(lambda: group.sent <= set(table.rows))
        first.store.is_cut = True
        group.send()
        await asyncio.sleep(3)
        second = await AloneProcess(group, sink()).start()
        group.send()
        await group.wait_until(lambda: group.sent <= set(table.rows))
        first.store.is_cut = False
        with pytest.raises(FencedError):
            await first.running
        await second.stop()
        return repeated(table.rows)

    assert run_virtual(story()) == 0


def test_a_job_ends_when_its_outage_lasts_longer_than_it_may():
    async def story():
        group = ElasticProcesses(shards=1)
        process = await AloneProcess(group, **{"flink.job.max.outage": 120_000}).start()
        process.store.is_cut = True
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailableError, match=r"flink.job.max.outage"):
            await process.running
        return asyncio.get_running_loop().time() - began

    assert 120 <= run_virtual(story()) <= 135
