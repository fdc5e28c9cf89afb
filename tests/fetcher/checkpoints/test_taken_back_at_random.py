"""Commits that a table refuses are taken back while starts replace each other and publish late: each row is there once (S6)."""

import asyncio
import random
from dataclasses import replace

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_format import PARTS_PREFIX
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.position_documents import PositionPart
from recordpublisher.fetcher.leases.worker_sealing import seal_worker
from recordpublisher.plugins.positions.sink_leftovers import UnpublishedCommits, take_back_commits
from recordpublisher.publishers.errors import StateError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from .test_commits_at_random import ROWS, Client, Network, NumberingSink, run_start
from fakes.commits.committing_sink import Table
from fakes.memory_store import MemoryStore

SCHEDULES = 150
NO_MORE = 2**63 - 1
BACK = "/taken-back"


class RefusingSink(NumberingSink):
    """A table that others change: at times it refuses the rows. Its numbers say what was taken back, as those of a lake table do."""

    can_take_back = True

    async def publish(self, staged):
        numbers = self.table.numbers
        for each in staged:
            if numbers.get(each.number.writer) == NO_MORE and each.number.n >= numbers[each.number.writer + BACK]:
                raise StateError("it was taken back")
            if self.table.refuses and numbers.get(each.number.writer, 0) < each.number.n:
                raise StateError("the table has a constraint")
            await super().publish([each])

    def found(self, staged):
        last = self.table.numbers.get(staged[0].number.writer, 0)
        first = self.table.numbers[staged[0].number.writer + BACK] if last == NO_MORE else last + 1
        return [each for each in staged if each.number.n >= first]

    async def unpublished(self, staged):
        return [each for of_writer in by_writer(staged) for each in self.found(of_writer)]

    async def take_back(self, staged):
        found = []
        for of_writer in by_writer(staged):
            found += await self.void(of_writer)
        return found

    async def void(self, staged):
        writer = staged[0].number.writer
        seen = self.table.numbers.get(writer, 0)

        def block(first):
            if self.table.numbers.get(writer, 0) != seen:
                raise StoreUnavailableError("others were faster: look again")
            self.table.numbers |= {writer: NO_MORE, writer + BACK: first}

        found = self.found(staged)
        if found and seen != NO_MORE:
            await self.network.request(lambda: block(found[0].number.n))
        return found


def by_writer(staged):
    writers = dict.fromkeys(each.number.writer for each in staged)
    return [[each for each in staged if each.number.writer == writer] for writer in writers]


async def operate(table, shared, network):
    """The command: once, or it dies at any step."""
    client = Client(shared, network)
    sink = RefusingSink(table, client, network)
    for name, stored in (await client.list(PARTS_PREFIX)).items():
        part = PositionPart.from_bytes(stored.value, name)
        if part.staged and (staged := await sink.unpublished(part.staged)):
            await asyncio.sleep(network.draw.choice([0, 20]) * network.draw.random())
            await seal_worker(GroupStore(client), part.worker)
            await take_back_commits(UnpublishedCommits(sink, client, name, staged))


async def change(table, draw):
    """A foreign writer."""
    while True:
        await asyncio.sleep(draw.uniform(0, 60))
        table.refuses = draw.random() < 0.5


async def quiet(call):
    try:
        return await call
    except (StateError, StoreUnavailableError):
        return False


async def story(seed):
    draw, table, shared = random.Random(f"{seed} taken back"), Table(), MemoryStore()
    table.numbers, table.refuses = {}, False
    running = [asyncio.ensure_future(change(table, draw))]
    for _ in range(draw.randint(2, 7)):
        if draw.random() < 0.6:
            running.append(asyncio.ensure_future(quiet(run_start(table, shared, RefusingSink, Network(draw)))))
        else:
            running.append(asyncio.ensure_future(quiet(operate(table, shared, Network(draw)))))
        await asyncio.sleep(draw.choice([0, 1, 20, 200]) * draw.random())
        if draw.random() < 0.4:
            draw.choice(running[1:] or running).cancel()
    await asyncio.sleep(draw.choice([0, 300]))
    running[0].cancel()
    table.refuses = draw.random() < 0.5  # then only the command helps the last start
    last = Network(draw)
    last.is_calm = True
    await quiet(operate(table, shared, last))
    table.refuses = False
    while not await quiet(run_start(table, shared, RefusingSink, last)):
        await quiet(operate(table, shared, last))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await asyncio.sleep(1000)
    return sorted(map(int, table.rows)) == [*range(1, ROWS + 1)]


def wrong():
    found = []
    for seed in range(SCHEDULES):
        try:
            is_right = run_virtual(asyncio.wait_for(story(seed), 100_000))  # noqa: TID251 - of virtual time
        except (KeyError, AssertionError):
            is_right = False
        if not is_right:
            found.append(seed)
    return found


def test_each_row_is_there_once():
    assert wrong() == []


@pytest.mark.slow
def test_without_a_number_in_the_table_rows_come_twice(monkeypatch):
    async def only_look(self, staged):
        return self.found(staged)

    monkeypatch.setattr(RefusingSink, "void", only_look)
    assert wrong()


@pytest.mark.slow
def test_without_positions_from_before_rows_are_lost(monkeypatch):
    """The entry only forgets what it named."""

    async def only_forget(found):
        if await found.sink.take_back(found.staged):
            stored = await found.store.get(found.name)
            part = PositionPart.from_bytes(stored.value, found.name)
            value = replace(part, write=part.write + 1, is_sealed=True, staged=()).to_bytes()
            await found.store.compare_and_set(found.name, value, stored.version)

    monkeypatch.setattr(f"{__name__}.take_back_commits", only_forget)
    assert wrong()
