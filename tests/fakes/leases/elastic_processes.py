"""Elastic fetchers on one virtual loop, over one store in memory and one scripted source."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.elastic.job_storage import JobStorage
from recordpublisher.fetcher.elastic.leased_ownership import LeasedOwnership
from recordpublisher.fetcher.elastic.leased_shards import LeasedShards
from recordpublisher.fetcher.leases.group_store import WORKERS
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.worker import Worker
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch

from ..memory_store import MemoryStore
from fakes.scripted_source import RecordingSink, ScriptedSource, fetcher_dependencies

DURATION = 20.0


class ConnectedStore(MemoryStore):
    """The connection of one process to the shared values, which can be cut."""

    def __init__(self, shared: MemoryStore) -> None:
        super().__init__()
        self.values = shared.values
        self._shared = shared
        self.is_cut = self.is_hanging = False
        self.workers: set[str] = set()
        """The lives that the process had."""

    async def get(self, name: str) -> Any:
        self._check()
        return await self._shared.get(name)

    async def list(self, prefix: str, *, consistent: bool = True) -> Any:
        self._check()
        return await self._shared.list(prefix)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        while self.is_hanging:  # noqa: ASYNC110 - nobody ends it
            await asyncio.sleep(1)
        return await super().compare_and_set(name, value, expected)

    def _write(self, name: str, value: bytes, expected: str | None) -> str:
        self._check()
        if name.startswith(WORKERS) and expected is None:
            self.workers.add(name.removeprefix(WORKERS))
        return self._shared._write(name, value, expected)

    def _check(self) -> None:
        if self.is_cut:
            raise StoreUnavailableError("cut off")


class TimedSink(RecordingSink):
    """Knows when each batch was written, and writes into the rows of the whole group, too."""

    def __init__(self, group_rows: list[tuple[str, int]], cost: float) -> None:
        super().__init__(cost)
        self.times: list[float] = []
        self._group_rows = group_rows

    async def write(self, batch: RecordBatch) -> None:
        before = len(self.rows)
        await super().write(batch)
        self.times.append(asyncio.get_running_loop().time())
        self._group_rows += self.rows[before:]


class FetcherProcess:
    """Owns one fetcher and its run."""

    fetcher: ShardFetcher
    running: asyncio.Task[None]

    async def start(self) -> Self:
        await self.fetcher.open()
        self.running = asyncio.create_task(self.fetcher.run())
        return self

    async def stop(self) -> None:
        """End with a last checkpoint, and leave the group if there is one."""
        self.fetcher.stop()
        await self.running
        await self.fetcher.close()

    async def kill(self) -> None:
        """The process is gone, without a word."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


class ElasticProcess(FetcherProcess):
    """A worker of the group."""

    def __init__(
        self,
        source: ScriptedSource,
        store: ConditionalStore,
        sink: Sink,
        properties: dict[str, object],
        streams: Sequence[str],
        latest_ms: int | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.store = store
        self.sink = sink
        dependencies = fetcher_dependencies(source, sink, properties, streams=streams)
        if latest_ms is not None:
            dependencies = replace(
                dependencies,
                starts=Starts(StartingPosition.latest()),
                pin_latest=lambda stream: asyncio.sleep(0, latest_ms),
            )
        self.fetcher = build_fetcher(
            dependencies, JobStorage(store, LeaseSettings(DURATION), chance=chance or random.Random(0))
        )

    @property
    def leased(self) -> LeasedShards:
        return self._ownership.leased

    @property
    def worker(self) -> Worker:
        """The life that runs now, or ran last."""
        worker = self._ownership.membership._current.worker
        assert worker is not None
        return worker

    @property
    def _ownership(self) -> LeasedOwnership:
        ownership = self.fetcher._ownership
        assert isinstance(ownership, LeasedOwnership)
        return ownership

    @property
    def shards(self) -> set[str]:
        """Those that it reads."""
        return {key.removeprefix("s/") for key in self.fetcher.metrics()["shards"]}


class ElasticProcesses:
    """Owns the source, the store, and the rows that all processes have written, in order."""

    def __init__(self, shards: int, cost: float = 0.0, streams: Sequence[str] = ("s",)) -> None:
        self.source = ScriptedSource()
        self.store = MemoryStore()
        self.rows: list[tuple[str, int]] = []
        self._cost = cost
        self._chance = random.Random(0)
        self.sent: set[tuple[str, int]] = set()
        for number in range(shards):
            self.source.add(f"shard-{number}", stream=streams[number % len(streams)])

    async def join(
        self,
        streams: Sequence[str] = ("s",),
        sink: Sink | None = None,
        latest_ms: int | None = None,
        **properties: object,
    ) -> ElasticProcess:
        """Start a process. Its sink is a TimedSink, or this one. `latest_ms`: it begins at LATEST, which is this time (epoch ms)."""
        return await self.made(streams, sink, latest_ms, **properties).start()

    def made(
        self,
        streams: Sequence[str] = ("s",),
        sink: Sink | None = None,
        latest_ms: int | None = None,
        **properties: object,
    ) -> ElasticProcess:
        """A process that has not been started."""
        given = {"flink.state.checkpoint.interval": 5_000, **properties}
        sink = sink or TimedSink(self.rows, self._cost)
        return ElasticProcess(self.source, self.connect(), sink, given, streams, latest_ms, self._chance)

    def connect(self) -> ConditionalStore:
        """The connection of a process that starts to the store of all processes."""
        return ConnectedStore(self.store)

    async def join_two(self, **properties: object) -> tuple[ElasticProcess, ElasticProcess]:
        """Start two processes, and wait until each reads half of the shards."""
        first, second = await self.join(**properties), await self.join(**properties)
        half = len(self.source.shards) // 2
        await self.wait_until(lambda: len(first.shards) == len(second.shards) == half)
        return first, second

    def send(self, count: int = 5) -> None:
        """Some records into every open shard."""
        for scripted in self.source.shards.values():
            if not scripted.closed:
                times = [len(scripted.times) + each for each in range(count)]
                scripted.put(*times)
                self.sent |= {(scripted.shard.shard_id, time) for time in times}

    async def wait_until(self, condition: Callable[[], bool], seconds: float = 300) -> None:
        """Wait for at most some minutes of virtual time."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - conditions of several processes
                await asyncio.sleep(0.1)

    async def wait_until_all_is_written(self) -> None:
        await self.wait_until(lambda: self.sent <= set(self.rows))
