"""A write-ahead log under test: a store that crashes on demand, a fetcher of numbered records, and a query that reads as Spark does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.row_file import read_table
from recordpublisher.plugins.spark.continuous.wal_offset import WalOffset
from recordpublisher.plugins.spark.continuous.wal_planner import Limits, WalPlanner
from recordpublisher.plugins.spark.continuous.wal_sink import WalSink
from recordpublisher.plugins.spark.continuous.wal_writer import WalWriter
from recordpublisher.plugins.spark.continuous_options import ContinuousSettings
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from fakes.memory_store import MemoryStore

CLOCK = SystemClock()
NO_LIMIT = 2**60
Row = tuple[str, int]


class CrashError(Exception):
    """Raised where the process is killed."""


class MemoryWriteOnceStore(WriteOnceStore):
    """The store, shared by all fetchers and queries."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.content: dict[str, bytes] = {}

    async def put_if_absent(self, name, content):
        await asyncio.sleep(0)
        return self.content.setdefault(name, content)

    async def put(self, name, content):
        assert name not in self.content
        await asyncio.sleep(0)
        self.content[name] = content

    async def get(self, name):
        await asyncio.sleep(0)
        return self.content.get(name)

    async def names(self, prefix):
        await asyncio.sleep(0)
        return sorted(name for name in self.content if name.startswith(prefix))

    async def delete(self, names: Iterable[str]):
        for name in list(names):
            self.content.pop(name, None)
            await asyncio.sleep(0)


class CrashingStore(WriteOnceStore):
    """The store of one process, which crashes before or after its n-th write (None: never)."""

    def __init__(self, store: WriteOnceStore, writes: int | None = None, after_write: bool = False) -> None:
        self._store = store
        self._left = writes
        self._after_write = after_write

    async def put_if_absent(self, name, content):
        return await self._write(self._store.put_if_absent(name, content))

    async def put(self, name, content):
        await self._write(self._store.put(name, content))

    async def delete(self, names):
        await self._write(self._store.delete(names))

    async def get(self, name):
        self._check()
        return await self._store.get(name)

    async def names(self, prefix):
        self._check()
        return await self._store.names(prefix)

    def _check(self):
        if self._left is not None and self._left < 0:
            raise CrashError

    async def _write(self, work):
        if self._left is not None:
            self._left -= 1
        if self._left is not None and (self._left < -1 or (self._left == -1 and not self._after_write)):
            work.close()
            raise CrashError
        result = await work
        self._check()
        return result


class SuspendedStore(CrashingStore):
    """The store of a process that is suspended before its n-th write, until it is resumed."""

    def __init__(self, store: WriteOnceStore, writes: int) -> None:
        super().__init__(store)
        self._until_suspension = writes
        self.resumed = asyncio.Event()
        self.suspended = asyncio.Event()

    async def _write(self, work):
        if self._until_suspension == 0:
            self.suspended.set()
            await self.resumed.wait()
        self._until_suspension -= 1
        return await super()._write(work)


class Fetcher:
    """A start of the fetcher: takes over the log and reads numbered records of its shards into a WalSink."""

    def __init__(
        self,
        store: WriteOnceStore,
        shards: list[Shard],
        pressure: BackPressure | None = None,
        clock: Clock = CLOCK,
        **settings,
    ) -> None:
        self._store = store
        self._shards = shards
        self._pressure = pressure or BackPressure(NO_LIMIT)
        self._settings = ContinuousSettings(roll_seconds=1000, **settings)
        self.writer = WalWriter(store, clock)
        self._states: dict[str, ShardState] = {}
        self.requested = 0

    async def open(self) -> Fetcher:
        """Returns itself."""
        state = await self.writer.take_over(no_shards)
        self.sink = WalSink(self.writer, state, self._pressure, self._settings, lambda: None)
        state = await self.sink.open(SinkContext(request_checkpoint=self._request_checkpoint))
        known = {key: ShardState.from_json(entry) for key, entry in state["shards"].items()}
        fresh = ShardState(StartingPosition.trim_horizon())
        self._states = {shard.key: known.get(shard.key, fresh) for shard in self._shards}
        self._generation = state["generation"] + 1
        await self.flush()
        return self

    async def read(self, index: int, count: int, until: int) -> None:
        """Emit the next records of one of its shards."""
        shard = self._shards[index % len(self._shards)]
        position = self._states[shard.key].position
        begin = 0 if position is None else int(position.sequence) + 1
        numbers = range(begin, min(begin + count, until))
        if numbers:
            await self.sink.write(batch_of(shard, numbers))
            last = SequenceNumber(str(numbers[-1]))
            self._states[shard.key] = replace(self._states[shard.key], position=last)

    async def flush(self) -> None:
        state = snapshot_to_json(self._states, None, self._generation, 0, 1)
        await self.sink.flush(Checkpoint(state))

    async def read_all(self, until: int) -> None:
        for index in range(len(self._shards)):
            await self.read(index, until, until)
        await self.flush()

    def _request_checkpoint(self):
        self.requested += 1


def batch_of(shard: Shard, numbers: Iterable[int]) -> RecordBatch:
    records = [UserRecord(b"12345", str(n), 1.0, "k") for n in numbers]
    return RecordBatch(shard, records, raw_bytes=5 * len(records))


class Query:
    """A query and its log: every planned offset is logged before its batch is read, the last batch is read again after a restart."""

    def __init__(
        self,
        store: WriteOnceStore,
        retain: int = 1,
        limit: int | None = None,
        pressure: BackPressure | None = None,
    ) -> None:
        self._store = store
        self._retain = retain
        self._limits = Limits(rows=limit)
        self._pressure = pressure or BackPressure(NO_LIMIT)
        self.log: list[WalOffset] = []
        self.batches: dict[int, list[Row]] = {}

    async def start(self) -> None:
        self.planner = WalPlanner(self._store, CLOCK, self._retain)
        if not self.log:
            self.log.append(await self.planner.initial_offset())
        if len(self.log) > 1:
            await self._read(self.log[-2], self.log[-1])

    async def run_batch(self) -> bool:
        """Run one batch; returns whether there was one."""
        self._pressure.read_up_to(self.log[-1].entry)
        planned = await self.planner.next_offset(self.log[-1], self._limits)
        if planned is None:
            return False
        self.log.append(planned)
        if len(self.log) > 2:
            await self.planner.commit(self.log[-2])
        await self._read(self.log[-2], planned)
        return True

    async def run_all(self) -> None:
        while await self.run_batch():
            pass

    async def _read(self, start: WalOffset, end: WalOffset) -> None:
        rows: list[Row] = []
        for file in await self.planner.files(start, end):
            content = await self._store.get(file.name)
            assert content is not None, f"{file.name} is gone"
            table = read_table(file, content)
            numbers = map(int, table["sequenceNumber"].to_pylist())
            rows += zip(table["shardId"].to_pylist(), numbers, strict=True)
        assert self.batches.setdefault(end.batch, rows) == rows, "a batch that is read again has other rows"

    def rows(self, shard: str) -> list[int]:
        """The shard's records in the order in which the query read them."""
        return [n for batch in sorted(self.batches) for key, n in self.batches[batch] if key == shard]


async def no_shards():
    """The state of a job that has read nothing."""
    return {"version": 2, "generation": 1, "subtask": 0, "parallelism": 1, "pinnedStartMs": None, "shards": {}}


async def opened(store: WriteOnceStore, shards: list[Shard], **more) -> Fetcher:
    """A fetcher that has taken over the log."""
    return await Fetcher(store, shards, **more).open()
