"""A random schedule of a job that runs alone, or in a group, over the same documents.

Whole fetchers run on virtual time. They are started, stopped, killed and cut off, and shards are split. Calls to the stores take time,
and some are lost. In the end every record is written, and a sink that commits shows each exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from recordpublisher.publishers.errors import FencedError, RecordPublisherError, StateError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.commits.committing_sink import Table, TableSink
from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import DURATION, ConnectedStore, ElasticProcess, ElasticProcesses
from fakes.memory_store import MemoryStore

KINDS = ["alone", "group", "stop", "kill", "cut", "send", "split", "error"]
STYLES = [
    [3, 1, 1, 2, 2, 5, 1, 1],
    [1, 3, 1, 2, 2, 5, 1, 1],
    [2, 2, 1, 1, 4, 5, 2, 0],
    [5, 1, 1, 2, 5, 5, 1, 0],
    [5, 4, 0, 2, 1, 3, 5, 0],
]
LATENCIES = [0.0, 0.0, 0.05, 0.5]
"""How long a request and an answer travel at most (seconds)."""
START_WRITES = [1, 1, 2, 2, 2, 3, 3, 4, 5, 6]
"""A trap is in one of these writes of a process. A start makes the first ones."""
TRAFFIC_SECONDS = 2.0


class Connection(ConnectedStore):
    """The connection of one process to a store.

    Calls take time. One write may be lost, or its answer, with all later calls for a while.
    """

    def __init__(self, shared: MemoryStore, draw: random.Random) -> None:
        super().__init__(shared)
        self._draw = draw
        self._latency = draw.choice(LATENCIES)
        self._trapped_write = draw.choice(START_WRITES) if draw.random() < 0.4 else 0
        self._loses_answer = draw.random() < 0.5
        self._trap_seconds = draw.choice([2, 12, 30]) * draw.random()
        self._writes = 0

    async def get(self, name: str) -> Any:
        await self._travel()
        found = await super().get(name)
        await self._travel()
        return found

    async def list(self, prefix: str, *, consistent: bool = True) -> Any:
        await self._travel()
        found = await super().list(prefix, consistent=consistent)
        await self._travel()
        return found

    async def put_if_absent(self, name: str, value: bytes) -> str:
        return await self._send(name, value, None)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        return await self._send(name, value, expected)

    async def _send(self, name: str, value: bytes, expected: str | None) -> str:
        await self._travel()
        self._writes += 1
        is_trapped = self._writes == self._trapped_write
        if is_trapped and not self._loses_answer:
            self.cut(self._trap_seconds)
        version = self._write(name, value, expected)
        if is_trapped:
            self.cut(self._trap_seconds)
            self._check()
        await self._travel()
        return version

    def cut(self, seconds: float) -> None:
        """Lose every call for this time."""
        self.is_cut = True
        asyncio.get_running_loop().call_later(seconds, self.mend)

    def mend(self) -> None:
        self.is_cut = False

    async def _travel(self) -> None:
        if self._latency:
            await asyncio.sleep(self._latency * self._draw.random())


class Processes(ElasticProcesses):
    """Their connections have faults."""

    def __init__(self, shards: int, draw: random.Random) -> None:
        super().__init__(shards)
        self._draw = draw
        self.given: Connection | None = None
        """The next connection, if the sink of a process has made it."""

    def connect(self) -> Connection:
        given, self.given = self.given, None
        return given or Connection(self.store, self._draw)


class Rows(TableSink):
    """A sink that commits, whose rows are compared with what was sent."""

    def __init__(self, table: Table, entries: Connection | None, draw: random.Random) -> None:
        super().__init__(table, entries)
        self.connection = entries
        self._draw = draw

    def target(self) -> str:
        return "rows"

    async def write(self, batch: object) -> None:
        keys = [(batch.shard.key, (batch.shard.shard_id, time)) for time in batch.event_times]  # type: ignore[attr-defined]
        self.waiting += keys

    async def stage(self, number: object) -> object:
        await asyncio.sleep(self._draw.random() * self._draw.choice([0.1, 3]))
        return await super().stage(number)  # type: ignore[arg-type]


Started = AloneProcess | ElasticProcess


class AloneSchedule:
    """Owns the processes of one seed, and what was sent and written."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.group = Processes(draw.randint(1, 3), draw)
        self.group._chance = random.Random(f"{seed} chance")
        self.table = Table() if draw.random() < 0.6 else None
        self.entries = MemoryStore() if draw.random() < 0.5 else None
        # Not drawn, so that the seeds of `test_rules_taken_out.py` stay as they are.
        self.has_one_store = self.entries is not None and seed % 8 < 2
        """Whether the lease table is next to the rows too, as without `flink.state.uri`."""
        self.weights = draw.choice(STYLES)
        self.processes: list[Started] = []
        self.starting: dict[asyncio.Task[None], Started] = {}
        self.refusals: list[str] = []
        """Why starts were refused."""
        self.splits = 0
        self.has_traffic = draw.random() < 0.5
        """Whether records arrive all the time, so that each checkpoint has something to commit."""

    @property
    def rows(self) -> list[tuple[str, int]]:
        return self.group.rows if self.table is None else self.table.rows

    def sink(self) -> Rows | None:
        entries = None if self.entries is None else Connection(self.entries, self.draw)
        if self.table is not None and entries is not None and self.has_one_store:
            self.group.given = entries
        return None if self.table is None else Rows(self.table, entries, self.draw)

    @property
    def live(self) -> list[Started]:
        return [each for each in self.processes if not each.running.done()]

    async def run(self) -> None:
        self.start("alone" if self.draw.random() < 0.5 else "group")
        traffic = asyncio.get_running_loop().create_task(self.traffic())
        for _ in range(self.draw.randint(4, 14)):
            await asyncio.sleep(self.draw.expovariate(1 / 9))
            await self.apply(self.draw.choices(KINDS, self.weights)[0])
        traffic.cancel()
        for each in [*self.processes, *self.starting.values()]:
            for connection in connections(each):
                connection.mend()
        await self.settled()
        if not self.live:
            self.start(self.draw.choice(["alone", "group"]))
            await self.settled()
        if not self.live:  # an alone start that a living group had refused, which has ended since
            self.start("group")
            await self.settled()
        self.check_that_one_job_runs()
        self.group.send()
        await self.group.wait_until(lambda: self.group.sent <= set(self.rows), 600)
        await asyncio.sleep(2 * DURATION)
        self.check_that_one_job_runs()
        repeats = len(self.rows) - len(set(self.rows))
        assert self.table is None or not repeats, f"{repeats} rows are there twice"
        elsewhere = [each for each in self.refusals if "whose lease table is not" in each]
        assert not elsewhere, f"a start was refused: {elsewhere[0]}"
        for each in self.live:
            with contextlib.suppress(RecordPublisherError):
                await each.stop()
        await self.end()

    async def end(self) -> None:
        for each in self.processes:
            await each.kill()

    async def traffic(self) -> None:
        while self.has_traffic:
            await asyncio.sleep(TRAFFIC_SECONDS * self.draw.random())
            self.group.send(1)

    def check_that_one_job_runs(self) -> None:
        """A process that runs alone has noticed that it was replaced, even if nothing has arrived since then."""
        alone = [each for each in self.live if isinstance(each, AloneProcess)]
        assert not alone or len(self.live) == 1, "an alone process and another one run"

    async def settled(self) -> None:
        """Wait until starts have ended, and leases of processes that have gone."""
        await asyncio.gather(*self.starting, return_exceptions=True)
        await asyncio.sleep(3 * DURATION)

    def start(self, kind: str) -> None:
        """Start a process, while others start and run."""
        if len(self.live) + len(self.starting) < 4:
            made = AloneProcess(self.group, self.sink()) if kind == "alone" else self.group.made(sink=self.sink())
            task = asyncio.get_running_loop().create_task(self._open(made))
            self.starting[task] = made
            task.add_done_callback(self.starting.pop)

    async def _open(self, process: Started) -> None:
        with contextlib.suppress(StateError, StoreUnavailableError, FencedError, TimeoutError):
            async with asyncio.timeout(120):
                try:
                    self.processes.append(await process.start())
                except StateError as error:
                    self.refusals.append(str(error))
                    raise
                process.running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def apply(self, kind: str) -> None:
        if kind in ("alone", "group"):
            self.start(kind)
        elif kind == "kill" and self.starting and self.draw.random() < 0.5:
            task, process = self.draw.choice(list(self.starting.items()))
            for connection in connections(process):
                connection.is_cut = True
            task.cancel()
        elif kind == "send":
            self.group.send(self.draw.randint(1, 5))
        elif kind == "split":
            self.split()
        elif self.live:
            await self.apply_to(self.draw.choice(self.live), kind)

    async def apply_to(self, chosen: Started, kind: str) -> None:
        if kind == "stop":
            with contextlib.suppress(RecordPublisherError, TimeoutError):
                async with asyncio.timeout(300):
                    await chosen.stop()
        elif kind == "kill":
            for connection in connections(chosen):
                connection.is_cut = True
            await chosen.kill()
        elif kind == "cut":
            seconds = self.draw.choice([3, 15, 40]) * self.draw.random()
            for connection in connections(chosen)[: self.draw.choice([1, 2])]:
                connection.cut(seconds)

    def split(self) -> None:
        open_shards = [each.shard.shard_id for each in self.group.source.shards.values() if not each.closed]
        if len(open_shards) < 6:
            parent = self.draw.choice(open_shards)
            self.splits += 1
            self.group.source.split(parent, f"shard-1{self.splits}0", f"shard-1{self.splits}1")


def connections(process: Started) -> list[Connection]:
    """The connections of a process: to the group's store, and to the entries of its sink."""
    entries = process.sink.connection if isinstance(process.sink, Rows) else None
    return [process.store, *([] if entries is None else [entries])]  # type: ignore[list-item]


def run(seed: int) -> None:
    """Run the schedule of a seed. Raises: AssertionError, TimeoutError or RecordPublisherError if a rule is broken."""
    before = random.getstate()
    random.seed(seed)  # the jitter of retries
    try:
        run_virtual(AloneSchedule(seed).run())
    finally:
        random.setstate(before)


def failures(seeds: range) -> list[str]:
    """The seeds whose schedule fails, each as the setting that runs it again, and its error."""
    found = []
    for seed in seeds:
        try:
            run(seed)
        except (AssertionError, RecordPublisherError, TimeoutError) as error:
            found.append(f"ALONE_SEED={seed}: {type(error).__name__}: {error}")
    return found
