"""Random schedules of a job that runs alone, or in a group, over the same documents: no record is lost in any.

Whole fetchers run on virtual time. They are started, stopped, killed and cut off, and shards are split. In the end every record is
written, and a sink that commits shows each exactly once.

ALONE_SCHEDULES=2000 ALONE_FIRST=0 pytest -m simulation tests/simulation/alone    runs many; ALONE_SEED=123 runs one again
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from recordpublisher.publishers.errors import FencedError, RecordPublisherError, StateError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.commits.committing_sink import Table, TableSink
from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.memory_store import MemoryStore

QUICK, MANY = 12, 200
KINDS = ["alone", "group", "stop", "kill", "cut", "send", "split", "error"]
STYLES = [[3, 1, 1, 2, 2, 5, 1, 1], [1, 3, 1, 2, 2, 5, 1, 1], [2, 2, 1, 1, 4, 5, 2, 0]]


class Rows(TableSink):
    """A sink that commits, whose rows are compared with what was sent."""

    def __init__(self, table: Table, entries: MemoryStore | None, draw: random.Random) -> None:
        super().__init__(table, entries)
        self._draw = draw

    def target(self) -> str:
        return "rows"

    async def write(self, batch: object) -> None:
        keys = [(batch.shard.key, (batch.shard.shard_id, time)) for time in batch.event_times]  # type: ignore[attr-defined]
        self.waiting += keys

    async def stage(self, number: object) -> object:
        await asyncio.sleep(self._draw.random() * self._draw.choice([0.1, 3]))
        return await super().stage(number)  # type: ignore[arg-type]


class Schedule:
    """Owns the processes of one seed, and what was sent and written."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.group = ElasticProcesses(shards=draw.randint(1, 3))
        self.group._chance = random.Random(f"{seed} chance")
        self.table = Table() if draw.random() < 0.6 else None
        self.entries = MemoryStore() if draw.random() < 0.5 else None
        self.weights = draw.choice(STYLES)
        self.processes: list[object] = []
        self.splits = 0

    @property
    def rows(self) -> list[tuple[str, int]]:
        return self.group.rows if self.table is None else self.table.rows

    def sink(self) -> Rows | None:
        return None if self.table is None else Rows(self.table, self.entries, self.draw)

    @property
    def live(self) -> list[object]:
        return [each for each in self.processes if not each.running.done()]  # type: ignore[attr-defined]

    async def run(self) -> None:
        await self.start("alone" if self.draw.random() < 0.5 else "group")
        for _ in range(self.draw.randint(4, 14)):
            await asyncio.sleep(self.draw.expovariate(1 / 9))
            await self.apply(self.draw.choices(KINDS, self.weights)[0])
        for each in self.processes:
            each.store.is_cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(3 * DURATION)
        if not self.live:
            await self.start(self.draw.choice(["alone", "group"]))
        if not self.live:  # an alone start that a living group had refused, which has ended since
            await asyncio.sleep(3 * DURATION)
            await self.start("group")
        self.group.send()
        await self.group.wait_until(lambda: self.group.sent <= set(self.rows), 600)
        await asyncio.sleep(2 * DURATION)
        repeats = len(self.rows) - len(set(self.rows))
        assert self.table is None or not repeats, f"{repeats} rows are there twice"
        alone = [each for each in self.live if isinstance(each, AloneProcess)]
        assert not alone or len(self.live) == 1, "an alone process and another one run"
        for each in self.live:
            with contextlib.suppress(RecordPublisherError):
                await each.stop()  # type: ignore[attr-defined]
        await self.end()

    async def end(self) -> None:
        for each in self.processes:
            await each.kill()  # type: ignore[attr-defined]

    async def start(self, kind: str) -> None:
        if len(self.live) >= 4:
            return
        try:
            async with asyncio.timeout(120):
                if kind == "alone":
                    process: object = await AloneProcess(self.group, self.sink()).start()
                else:
                    process = await self.group.join(sink=self.sink())
        except (StateError, StoreUnavailableError, FencedError, TimeoutError):
            return
        self.processes.append(process)

    async def apply(self, kind: str) -> None:
        if kind in ("alone", "group"):
            await self.start(kind)
        elif kind == "send":
            self.group.send(self.draw.randint(1, 5))
        elif kind == "split":
            self.split()
        elif self.live:
            await self.apply_to(self.draw.choice(self.live), kind)

    async def apply_to(self, chosen: object, kind: str) -> None:
        if kind == "stop":
            with contextlib.suppress(RecordPublisherError, TimeoutError):
                async with asyncio.timeout(300):
                    await chosen.stop()  # type: ignore[attr-defined]
        elif kind == "kill":
            chosen.store.is_cut = True  # type: ignore[attr-defined]
            await chosen.kill()  # type: ignore[attr-defined]
        elif kind == "cut":
            chosen.store.is_cut = True  # type: ignore[attr-defined]
            seconds = self.draw.choice([3, 15, 40]) * self.draw.random()
            asyncio.get_running_loop().call_later(seconds, setattr, chosen.store, "is_cut", False)  # type: ignore[attr-defined]

    def split(self) -> None:
        open_shards = [each.shard.shard_id for each in self.group.source.shards.values() if not each.closed]
        if len(open_shards) < 6:
            parent = self.draw.choice(open_shards)
            self.splits += 1
            self.group.source.split(parent, f"shard-1{self.splits}0", f"shard-1{self.splits}1")


def run(seed: int) -> None:
    run_virtual(Schedule(seed).run())


def failures(seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        try:
            run(seed)
        except (AssertionError, RecordPublisherError, TimeoutError) as error:
            found.append(f"ALONE_SEED={seed}: {type(error).__name__}: {error}")
    return found


def test_every_record_is_written_in_each_schedule():
    assert failures(range(QUICK)) == []


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_record_is_written_in_many_schedules():
    if "ALONE_SEED" in os.environ:
        run(int(os.environ["ALONE_SEED"]))
        return
    first, count = int(os.environ.get("ALONE_FIRST", QUICK)), int(os.environ.get("ALONE_SCHEDULES", MANY))
    assert failures(range(first, first + count)) == []
