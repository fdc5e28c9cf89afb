"""Commits of a group that its table refuses are taken back while workers come, die and publish late: each row is there once (S6, E1)."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from recordpublisher.fetcher.elastic.group_membership import GroupMembership
from recordpublisher.fetcher.elastic.job_storage import JobStorage
from recordpublisher.fetcher.elastic.positions_with_rows import SinkLives
from recordpublisher.fetcher.leases.group_counters import GroupCounters
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.group_watermark import ShardWatermark
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.position_documents import (
    PositionKey,
    PositionPart,
    StoredPosition,
    positions_to_json,
)
from recordpublisher.fetcher.leases.position_store import CheckpointPositions
from recordpublisher.fetcher.leases.shard_listing import ShardListing
from recordpublisher.fetcher.leases.worker_sealing import LiveWorkerError, seal_all_silent
from recordpublisher.fetcher.pipeline.current_worker import CurrentWorker
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import CommitNumber, RevocationReason, Staged
from recordpublisher.plugins.positions import sink_leftovers
from recordpublisher.plugins.positions.sink_leftovers import take_back_commits
from recordpublisher.publishers.errors import FencedError, RecordPublisherError, StoreUnavailableError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import VirtualClock, run_virtual
from recordpublisher.testing.sink_contract import batch_of

from .test_commits_at_random import Client, Network
from .test_taken_back_at_random import RefusingSink, quiet
from fakes.commits.committing_sink import Table
from fakes.memory_store import MemoryStore

SCHEDULES, MOST = 25, 200
SETTINGS = LeaseSettings(duration=8.0)
SHARDS = {"a": (1, 25), "b": (101, 125), "c": (201, 215)}
"""The first and the last record of each; c is the child of a."""
CHILDREN = {"orders/a": {"orders/c": ("orders/a",)}}


class Faulty(Network):
    """Most requests are answered soon: a worker that never is has no lease for long."""

    async def request(self, apply):
        if self.is_calm or self.draw.random() < 0.95:
            await asyncio.sleep(0.02)
            return apply()
        return await super().request(apply)


class SlowSink(RefusingSink):
    """Its table is another service, which often does not answer: heartbeats go on meanwhile."""

    def __init__(self, table, entries, network):
        of_table = Network(network.draw)
        of_table.is_calm = network.is_calm
        super().__init__(table, entries, of_table)

    async def publish(self, staged):
        await asyncio.sleep(self.network.draw.choice([0, 0, 4]) * self.network.draw.random())
        await super().publish(staged)


class Emitter:
    records = 0

    def __init__(self):
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def between_writes(self):
        async with self._lock:
            yield


class Readers:
    """Reads the shards of one process, record by record."""

    is_aligned, is_held, in_flight = False, False, 0

    def __init__(self, sink):
        self.sink, self.emitter = sink, Emitter()
        self.sink_lives = SinkLives(sink, self.emitter, VirtualClock())
        self.read, self.stopped = {}, set()

    def begin(self, shard, state, *, is_taken_over=False):
        first, _ = SHARDS[shard.rpartition("/")[2]]
        self.read[shard] = first - 1 if state.position is None else int(state.position.sequence)
        self.stopped.discard(shard)

    async def stop(self, shards):
        self.stopped |= set(shards)
        async with self.emitter.between_writes():
            """The write that was going on has ended."""

    def drop(self, shards):
        for shard in tuple(shards):
            self.read.pop(shard, None)
        self.sink.revoked(shards)

    def drop_all(self):
        self.drop(dict.fromkeys(self.read, RevocationReason.LOST))

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial=False):
        async with self.emitter.between_writes():
            yield CheckpointPositions({shard: self.stored(shard) for shard in self.read}, is_before_commit=True)

    def stored(self, shard):
        first, last = SHARDS[shard.rpartition("/")[2]]
        children = CHILDREN.get(shard, {}) if self.read[shard] == last else {}
        position = SequenceNumber(str(self.read[shard])) if self.read[shard] >= first else None
        state = ShardState(StartingPosition.trim_horizon(), position, ended=bool(children))
        return StoredPosition(state, children)

    def watermarks(self):
        return {shard: ShardWatermark(position) for shard, position in self.read.items()}

    def has_unfinished(self, shards):
        return False

    def loads(self):
        return {}

    async def run(self, draw, may_write):
        while True:
            await asyncio.sleep(draw.uniform(0.2, 2))
            async with self.emitter.between_writes():
                name = draw.choice(list(SHARDS))
                shard = f"orders/{name}"
                at = self.read.get(shard)
                if at is not None and shard not in self.stopped and may_write() and at < SHARDS[name][1]:
                    self.read[shard] = at + 1
                    await self.sink.write(batch_of(name, at + 1))


class World:
    """What outlives processes: the table, the store of the group, and that of the entries."""

    def __init__(self, draw):
        self.table, self.store = Table(), MemoryStore()
        self.table.numbers, self.table.refuses = {}, False
        self.entries = MemoryStore() if draw.random() < 0.5 else None

    def sink(self, network):
        return SlowSink(self.table, self.entries and Client(self.entries, network), network)

    @property
    def is_done(self):
        return len(self.table.rows) >= sum(last - first + 1 for first, last in SHARDS.values())


async def list_shards():
    return [Shard("orders", "a"), Shard("orders", "b"), Shard("orders", "c", parents=("a",))]


async def process(world, network, until=lambda: False):
    """A job until it is killed, an error ends it, or it is done. A kill leaves everything as it is."""
    draw, clock = network.draw, VirtualClock()
    store, readers = Client(world.store, network), Readers(world.sink(network))
    group = JobStorage(store, SETTINGS, "job", random.Random(draw.random()))
    job = GroupJob("table", ("orders",), world.entries is not None, "job")
    failed = []
    lives = GroupMembership(
        group,
        readers,
        CurrentWorker(),
        clock,
        job=job,
        counts=GroupCounters(),
        on_drain=lambda: lives.leave,
        on_error=lambda error: not failed.append(error),
    )
    listing = ShardListing(list_shards, MissingShards(), StartingPosition.trim_horizon(), clock, 10.0)
    lives.start(asyncio.ensure_future, listing)
    reading = asyncio.ensure_future(readers.run(draw, lambda: lives.may_write))
    try:
        while not until():
            await asyncio.wait([lives._task], timeout=draw.uniform(1, 5))
            if lives._task.done():
                return lives._task.result()
            if failed:
                raise failed[0]
            try:
                await lives.checkpoint(may_be_partial=False)
            except (StoreUnavailableError, FencedError):
                continue
    except RecordPublisherError:
        await lives.seal()
        raise
    finally:
        reading.cancel()
        await lives.cancel()


async def operate(world, network):
    """The command: it may die at any step."""
    store, sink = Client(world.store, network), world.sink(network)
    places = [store] if world.entries is None else [store, sink.entries()]
    found = [each for place in places for each in await sink_leftovers._unpublished_in(place, sink)]
    if not found:
        return
    group = GroupStore(store, SETTINGS.interval)
    if await group.read_table() is None:
        return
    try:
        await asyncio.wait_for(seal_all_silent(group, SETTINGS, VirtualClock()), 60)  # noqa: TID251 - of virtual time
    except (LiveWorkerError, TimeoutError):
        return
    for each in found:
        await take_back_commits(each)


async def change(table, draw):
    """A foreign writer."""
    while True:
        await asyncio.sleep(draw.uniform(0, 30))
        table.refuses = not table.refuses


async def story(seed):
    draw = random.Random(f"{seed} groups")
    world = World(draw)
    running = [asyncio.ensure_future(change(world.table, draw))]
    for _ in range(draw.randint(4, 12)):
        work = process if draw.random() < 0.6 else operate
        running.append(asyncio.ensure_future(quiet(work(world, Faulty(draw)))))
        await asyncio.sleep(draw.choice([1, 10, 30]) * draw.random())
        if draw.random() < 0.4:
            draw.choice(running[1:]).cancel()
    await asyncio.sleep(draw.choice([0, 30]))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    last = Faulty(draw)
    last.is_calm = True
    world.table.refuses = draw.random() < 0.5  # then only the command helps the last process
    for _ in range(5):
        if not world.is_done:
            await quiet(operate(world, last))
            world.table.refuses = False
            last_process = asyncio.ensure_future(quiet(process(world, last, lambda: world.is_done)))
            await asyncio.wait([last_process], timeout=600)
            last_process.cancel()
            await asyncio.gather(last_process, return_exceptions=True)
    await asyncio.sleep(300)  # whatever is late has come
    return sorted(map(int, world.table.rows)) == [n for first, last in SHARDS.values() for n in range(first, last + 1)]


def is_wrong(seed):
    try:
        return not run_virtual(asyncio.wait_for(story(seed), 100_000))  # noqa: TID251 - of virtual time
    except (KeyError, AssertionError):
        return True


def test_each_row_is_there_once():
    assert [seed for seed in range(SCHEDULES) if is_wrong(seed)] == []


def released_before_it_is_published(monkeypatch):
    on_commit = OwnedLeases.on_commit

    def also_committed(self, positions):
        on_commit(self, positions)
        self.on_published(positions)

    monkeypatch.setattr(OwnedLeases, "on_commit", also_committed)


def without_a_number_in_the_table(monkeypatch):
    async def only_look(self, staged):
        return self.found(staged)

    monkeypatch.setattr(RefusingSink, "void", only_look)


def without_positions_from_before(monkeypatch):
    monkeypatch.setattr(PositionPart, "before_commit", lambda self, first, place: self.positions)


# Slow: each draws schedules until one of them fails.
@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        released_before_it_is_published,
        without_a_number_in_the_table,
        without_positions_from_before,
    ],
)
def test_without_a_rule_some_rows_are_not_there_once(monkeypatch, rule):
    rule(monkeypatch)
    assert any(map(is_wrong, range(MOST)))


def test_a_shard_that_was_taken_after_the_first_commit_keeps_its_position():
    """It is in none of the positions from before that commit, and others look for it here."""
    a, b = PositionKey("orders/a", 2), PositionKey("orders/b", 5)
    befores = {1: {a: at(1)}, 2: {a: at(2), b: at(7)}}
    staged = [Staged(CommitNumber("w", n), {}, before=positions_to_json(each)) for n, each in befores.items()]
    part = PositionPart("w", positions={a: at(3), b: at(9)}, staged=staged)
    assert part.before_commit(CommitNumber("w", 1), "") == {a: at(1), b: at(7)}
    assert part.before_commit(CommitNumber("w", 2), "") == {a: at(2), b: at(7)}


def at(sequence):
    return StoredPosition(ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(sequence))))
