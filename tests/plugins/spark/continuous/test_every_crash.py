"""Fetchers and queries that crash or are suspended at any step, and zombies: every record once, in the order of its shard."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import (
    CrashError,
    CrashingStore,
    Fetcher,
    MemoryWriteOnceStore,
    Query,
    SuspendedStore,
    opened,
)

SHARDS = [Shard("s", f"shard-{number}") for number in range(3)]
RECORDS = 12

FUSE = st.tuples(st.none() | st.integers(0, 5), st.booleans())
"""After how many writes a process dies (None: never), and whether the last of them is done."""
ACTION = st.one_of(
    st.tuples(st.just("start"), FUSE, st.none()),
    st.tuples(st.just("work"), st.integers(0, 20), st.integers(1, 4)),
    st.tuples(st.just("work"), st.integers(0, 20), st.integers(1, 4)),
    st.tuples(st.just("read"), st.integers(1, 3), st.none()),
    st.tuples(st.just("query"), FUSE, st.none()),
    st.tuples(st.just("suspend_in_start"), st.integers(0, 2), st.none()),
    st.tuples(st.just("resume"), st.integers(0, 5), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 5), st.none()),
)


@dataclass
class Simulation:
    """The log, and the fetchers and queries that are running."""

    store: MemoryWriteOnceStore
    query: Query
    fetchers: list[Fetcher] = field(default_factory=list)
    suspended: list[tuple[SuspendedStore, asyncio.Task]] = field(default_factory=list)

    async def start(self, crash: tuple[int | None, bool], _: None) -> None:
        self.fetchers.append(await opened(CrashingStore(self.store, *crash), SHARDS))

    async def suspend_in_start(self, writes: int, _: None) -> None:
        """A start that is suspended before one of its writes, and resumed later."""
        store = SuspendedStore(self.store, writes)

        async def start() -> None:
            fetcher = await opened(store, SHARDS)
            store.resumed.set()  # it is suspended while it opens, or not at all
            self.fetchers.append(fetcher)

        await self.until_suspended(store, start())

    async def until_suspended(self, store: SuspendedStore, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self.suspended.append((store, task))
        sleep = asyncio.create_task(store.suspended.wait())
        await asyncio.wait({task, sleep}, return_when=asyncio.FIRST_COMPLETED)
        sleep.cancel()

    async def resume(self, which: int, _: None) -> None:
        if not self.suspended:
            return
        store, task = self.suspended.pop(which % len(self.suspended))
        store.resumed.set()
        await task

    async def kill(self, which: int, _: None) -> None:
        if self.fetchers:
            self.fetchers.pop(which % len(self.fetchers))

    async def work(self, which: int, count: int) -> None:
        if not self.fetchers:
            return
        fetcher = self.fetchers[which % len(self.fetchers)]
        try:
            await fetcher.read(which, count, RECORDS)
            if count % 2:
                await fetcher.flush()
        except (CrashError, FencedError):
            self.fetchers.remove(fetcher)

    async def read(self, batches: int, _: None) -> None:
        for _ in range(batches):
            await self.query.run_batch()

    async def restart_query(self, crash: tuple[int | None, bool], _: None) -> None:
        self.query._store = CrashingStore(self.store, *crash)
        await self.query.start()

    async def act(self, kind: str, *arguments: object) -> None:
        methods = {
            "start": self.start,
            "work": self.work,
            "read": self.read,
            "query": self.restart_query,
            "suspend_in_start": self.suspend_in_start,
            "resume": self.resume,
            "kill": self.kill,
        }
        try:
            await methods[kind](*arguments)
        except FencedError:
            pass
        except CrashError:
            if kind in ("read", "query"):
                await self.restart_query((None, False), None)

    async def finish(self) -> None:
        """A start without crashes reads to the end, and so does the query."""
        while self.suspended:
            await self.act("resume", 0, None)
        await self.start((None, False), None)
        for fetcher in list(self.fetchers):
            try:
                await fetcher.read_all(RECORDS)
            except (CrashError, FencedError):
                self.fetchers.remove(fetcher)
        await self.restart_query((None, False), None)
        await self.query.run_all()


async def simulate(actions, limit: int | None) -> Simulation:
    store = MemoryWriteOnceStore()
    simulation = Simulation(store, Query(store, limit=limit))
    await simulation.query.start()
    for action in actions:
        await simulation.act(*action)
    await simulation.finish()
    return simulation


NO_CRASH = (None, False)
START = ("start", NO_CRASH, None)
ZOMBIE = [
    START, ("work", 0, 3), START, ("work", 1, 3), ("read", 1, None),
    ("work", 0, 1), START, ("work", 1, 3), START, ("work", 1, 3), ("work", 0, 3),
]  # fmt: skip


SUSPENDED = [
    START, ("suspend_in_start", 0, None), *[("work", 0, 1), ("read", 1, None)] * 5,
    ("resume", 0, None), ("kill", 0, None), START, ("work", 0, 3), ("read", 3, None),
]  # fmt: skip


@given(st.lists(ACTION, max_size=40), st.none() | st.integers(1, 5))
@example(ZOMBIE, 1)
@example(SUSPENDED, 1)
@settings(max_examples=300, deadline=None)
def test_every_record_once_and_in_order(actions, limit):
    simulation = asyncio.run(simulate(actions, limit))
    for shard in SHARDS:
        assert simulation.query.rows(shard.shard_id) == list(range(RECORDS))
