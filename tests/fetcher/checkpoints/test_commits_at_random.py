"""Starts of a job that runs alone replace each other, with requests that are lost, late or applied twice: each row is there once (S6)."""

import asyncio
import random
from contextlib import suppress

import pytest

from recordpublisher.fetcher.checkpoints.staged_commits import Commits
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.elastic.positions_with_rows import PositionsWithRows
from recordpublisher.fetcher.leases.position_documents import PositionPart
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError
from recordpublisher.testing import VirtualClock, run_virtual
from recordpublisher.testing.sink_contract import batch_of

from fakes.commits.committing_sink import Start, Table, TableSink, snapshot_at
from fakes.memory_store import MemoryStore

ROWS = 12
SCHEDULES = 60


class Network:
    """Requests of one process: answered, or without an answer: applied now, later, or never. `is_calm`: always answered."""

    def __init__(self, draw):
        self.draw = draw
        self.is_calm = False

    async def request(self, apply):
        await asyncio.sleep(self.draw.choice([0, 0, 0.1, 50]) * self.draw.random())
        chance = 0.0 if self.is_calm else self.draw.random()
        if chance < 0.6:
            if self.draw.random() < 0.1:
                self.late(apply)  # a retry on the way
            return apply()
        if chance < 0.72:
            quietly(apply)
        elif chance < 0.9:
            self.late(apply)
        await asyncio.sleep(self.draw.choice([0.1, 30]) * self.draw.random())
        raise StoreUnavailableError("no answer")

    def late(self, apply):
        asyncio.get_running_loop().call_later(self.draw.uniform(0, 100), quietly, apply)


def quietly(apply):
    with suppress(ConflictError, StateError):
        apply()


class Client(MemoryStore):
    """One process's connection to the shared store."""

    def __init__(self, shared, network):
        super().__init__()
        self.values, self.shared, self.network = shared.values, shared, network

    async def put_if_absent(self, name, value):
        return await self.network.request(lambda: self.shared._write(name, value, None))

    async def compare_and_set(self, name, value, expected):
        return await self.network.request(lambda: self.shared._write(name, value, expected))


class RenamingSink(TableSink):
    """Publishing moves what is staged, each part by a request of its own; what is gone was moved."""

    def __init__(self, table, entries, network):
        super().__init__(table, entries)
        self.network = network

    async def stage(self, number):
        await self.network.request(lambda: None)
        return await super().stage(number)

    async def publish(self, staged):
        for each in staged:
            await self.network.request(lambda each=each: self.publish_one(each))

    def publish_one(self, staged):
        self.table.rows += self.table.staged.pop(staged.content["name"], [])


class NumberingSink(RenamingSink):
    """A table that keeps the last number of each writer, and a request that others were faster than is refused."""

    async def publish(self, staged):
        for each in staged:
            writer, n = each.number
            seen = self.table.numbers.get(writer, 0)
            if seen >= n:
                continue
            rows = self.table.staged[each.content["name"]]

            def add(writer=writer, n=n, seen=seen, rows=rows):
                if self.table.numbers.get(writer, 0) != seen:
                    raise StoreUnavailableError("others were faster: look again")
                self.table.numbers[writer] = n
                self.table.rows += rows

            await self.network.request(add)


class TransactionSink(RenamingSink):
    """A database: the entry and its rows are written together, and nothing is left to publish."""

    def __init__(self, *given):
        super().__init__(*given)
        self.in_memory = {}

    async def stage(self, number):
        staged = await super().stage(number)
        if staged is not None:
            self.in_memory[number] = self.table.staged.pop(staged.content["name"])
        return staged

    async def commit(self, store, name, value, expected, staged):
        rows = [row for each in staged for row in self.in_memory[each.number]]

        def write():
            version = store.shared._write(name, value, expected)
            self.table.rows += rows
            return version

        return await self.network.request(write)

    async def publish(self, staged):
        pass


KINDS = [RenamingSink, NumberingSink, TransactionSink]


async def run_start(table, shared, kind, network):
    """One start: goes on behind the last position, in checkpoints of a few rows. Returns whether all is published, else it is fenced."""
    client = Client(shared, network)
    start = Start(kind(table, client, network), clock=VirtualClock())
    try:
        states = await retried(start.open)
        position = max((int(one["position"]) for state in states for one in state["shards"].values()), default=0)
        while True:
            for _ in range(network.draw.randint(0, 4)):
                if position < ROWS:
                    position += 1
                    await start.sink.write(batch_of("a", position))
            try:
                await start.checkpoint(snapshot_at(position))
            except StoreUnavailableError:
                await asyncio.sleep(network.draw.random())
                continue
            if position == ROWS:
                return True
    except FencedError:
        return False


async def retried(call):
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            await asyncio.sleep(1)


async def story(seed, kind):
    """Some starts, each begun while the one before may still run; some are killed. The last one is left in peace."""
    draw, table, shared = random.Random(f"{seed} {kind.__name__}"), Table(), MemoryStore()
    table.numbers = {}
    running = []
    for _ in range(draw.randint(1, 4)):
        running.append(asyncio.ensure_future(run_start(table, shared, kind, Network(draw))))
        await asyncio.sleep(draw.choice([0, 1, 20, 200]) * draw.random())
        if draw.random() < 0.4:
            draw.choice(running).cancel()
    await asyncio.sleep(draw.choice([0, 300]))
    last = Network(draw)
    last.is_calm = True
    while not await run_start(table, shared, kind, last):
        """One that was begun before had not taken its generation yet."""
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await asyncio.sleep(1000)  # whatever is late has come
    return sorted(map(int, table.rows)) == [*range(1, ROWS + 1)]


def wrong(kind, schedules):
    """The seeds whose rows are not there once each; one that ends in an error of ours is wrong, too."""
    found = []
    for seed in range(schedules):
        try:
            is_right = run_virtual(asyncio.wait_for(story(seed, kind), 100_000))  # noqa: TID251 - of virtual time
        except (KeyError, StateError, AssertionError):
            is_right = False
        if not is_right:
            found.append(seed)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_there_once(kind):
    assert wrong(kind, SCHEDULES) == []


def give_up_the_undecided(monkeypatch):
    settle = Commits.settle

    async def forgetful(self):
        self._undecided = None
        await settle(self)

    monkeypatch.setattr(Commits, "settle", forgetful)
    decide = Commits._decide

    async def following(self, write):
        try:
            await decide(self, write)
        except FencedError as error:
            current = error.__cause__.current
            if current is None or PositionPart.from_bytes(current.value, "").is_sealed:
                raise
            self._version, self._undecided = current.version, None
            raise StoreUnavailableError("an earlier one took effect") from error

    monkeypatch.setattr(Commits, "_decide", following)


def forget_the_unpublished(monkeypatch):
    decide = Commits._decide

    async def forgetful(self, write):
        await decide(self, write)
        self._unpublished = list(write.staged)

    monkeypatch.setattr(Commits, "_decide", forgetful)


def discard_what_is_named(monkeypatch):
    seal = PositionsWithRows.seal

    async def careless(self, record):
        discard, publish = self._sink.discard, self._sink.publish

        async def later(staged):
            """Not before what has ended is discarded."""

        self._sink.publish = later
        try:
            found = await seal(self, record)
            await discard(lambda life: life == record.worker, ())
            return found
        finally:
            self._sink.publish = publish

    monkeypatch.setattr(PositionsWithRows, "seal", careless)


def let_the_replaced_go_on(monkeypatch):
    decide = Commits._decide

    async def unfenced(self, write):
        try:
            await decide(self, write)
        except FencedError as error:
            if error.__cause__.current is None:
                raise
            self._version = error.__cause__.current.version
            await decide(self, write)

    monkeypatch.setattr(Commits, "_decide", unfenced)


# Slow: each draws schedules until one of them fails.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (give_up_the_undecided, TransactionSink),
        (forget_the_unpublished, RenamingSink),
        (forget_the_unpublished, NumberingSink),
        (discard_what_is_named, RenamingSink),
        (let_the_replaced_go_on, RenamingSink),
        (let_the_replaced_go_on, TransactionSink),
    ],
)
def test_without_a_rule_some_rows_are_not_there_once(monkeypatch, rule, kind):
    rule(monkeypatch)
    assert wrong(kind, SCHEDULES)
