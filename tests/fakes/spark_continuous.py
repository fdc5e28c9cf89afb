"""A spool under test: a store in memory that dies when told, fetchers of numbered records, and a query that reads as Spark does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.spark.continuous.admission import Limits
from recordpublisher.plugins.spark.continuous.generation import Generation
from recordpublisher.plugins.spark.continuous.lane import Lane
from recordpublisher.plugins.spark.continuous.offset import SpoolOffset
from recordpublisher.plugins.spark.continuous.opening import open_generation
from recordpublisher.plugins.spark.continuous.planner import SpoolPlanner
from recordpublisher.plugins.spark.continuous.rows import read_rows
from recordpublisher.plugins.spark.continuous.sink import SpoolSink
from recordpublisher.plugins.spark.continuous_options import SpoolSettings
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

CLOCK = SystemClock()
Row = tuple[str, int]


class LaterClock:
    """So much later than the machine's."""

    def __init__(self, later_ms: int) -> None:
        self._later_ms = later_ms

    def now_ms(self) -> int:
        return CLOCK.now_ms() + self._later_ms

    def monotonic(self) -> float:
        return CLOCK.monotonic()


class DiedError(Exception):
    """As if the process was killed."""


class MemoryObjects(ObjectStore):
    """The store, shared by everybody."""

    def __init__(self) -> None:
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

    async def names(self, beginning):
        await asyncio.sleep(0)
        return sorted(name for name in self.content if name.startswith(beginning))

    async def delete(self, names: Iterable[str]):
        for name in list(names):
            self.content.pop(name, None)
            await asyncio.sleep(0)


class Mortal(ObjectStore):
    """The store as one process sees it, which dies before or after its n-th write (None: it lives)."""

    def __init__(self, store: ObjectStore, writes: int | None = None, is_done: bool = False) -> None:
        self._store = store
        self._left = writes
        self._is_done = is_done

    async def put_if_absent(self, name, content):
        return await self._write(self._store.put_if_absent(name, content))

    async def put(self, name, content):
        await self._write(self._store.put(name, content))

    async def delete(self, names):
        await self._write(self._store.delete(names))

    async def get(self, name):
        self._check()
        return await self._store.get(name)

    async def names(self, beginning):
        self._check()
        return await self._store.names(beginning)

    def _check(self):
        if self._left is not None and self._left < 0:
            raise DiedError

    async def _write(self, work):
        if self._left is not None:
            self._left -= 1
        if self._left is not None and (self._left < -1 or (self._left == -1 and not self._is_done)):
            work.close()
            raise DiedError
        answer = await work
        self._check()
        return answer


class Sleepy(Mortal):
    """The store as a process sees it that is stopped before its n-th write, until it is woken."""

    def __init__(self, store: ObjectStore, writes: int) -> None:
        super().__init__(store)
        self._until_sleep = writes
        self.awake = asyncio.Event()
        self.asleep = asyncio.Event()

    async def _write(self, work):
        if self._until_sleep == 0:
            self.asleep.set()
            await self.awake.wait()
        self._until_sleep -= 1
        return await super()._write(work)


class Fetcher:
    """One attempt of a lane: reads its shards, number after number, into a SpoolSink."""

    def __init__(
        self,
        store: ObjectStore,
        generation: Generation,
        lane: int,
        shards: list[Shard],
        clock: Clock = CLOCK,
        **settings,
    ) -> None:
        self.lane = lane
        self._shards = [shard for place, shard in enumerate(shards) if place % generation.lanes == lane]
        settings = SpoolSettings(roll_seconds=1000, **settings)
        self.sink = SpoolSink(Lane(store, generation, lane, clock), settings, lambda: None)
        self._states: dict[str, ShardState] = {}
        self.asked = 0

    async def open(self) -> None:
        state = await self.sink.open(SinkContext(self.lane, request_checkpoint=self._ask))
        known = {key: ShardState.from_json(entry) for key, entry in state["shards"].items()}
        fresh = ShardState(StartingPosition.trim_horizon())
        self._states = {shard.key: known.get(shard.key, fresh) for shard in self._shards}
        self._generation = state["generation"] + 1
        await self.flush()

    async def read(self, place: int, count: int, until: int) -> None:
        """Emit the next records of one of its shards."""
        if not self._shards:
            return
        shard = self._shards[place % len(self._shards)]
        position = self._states[shard.key].position
        begin = 0 if position is None else int(position.sequence) + 1
        numbers = range(begin, min(begin + count, until))
        if numbers:
            await self.sink.write(batch_of(shard, numbers))
            last = SequenceNumber(str(numbers[-1]))
            self._states[shard.key] = ShardState(StartingPosition.trim_horizon(), last, parents=shard.parents)

    async def flush(self) -> None:
        state = snapshot_to_json(self._states, None, self._generation, self.lane, 1)
        await self.sink.flush(Checkpoint(state))

    async def read_all(self, until: int) -> None:
        for place in range(len(self._shards)):
            await self.read(place, until, until)
        await self.flush()

    def _ask(self):
        self.asked += 1


def batch_of(shard: Shard, numbers: Iterable[int]) -> RecordBatch:
    records = [UserRecord(b"12345", str(n), 1.0, "k") for n in numbers]
    return RecordBatch(shard, records, raw_bytes=5 * len(records))


class Query:
    """A query and its log: every planned offset is logged before its batch is read, the last batch is read again after a restart."""

    def __init__(self, store: ObjectStore, retain: int = 1, limit: int | None = None) -> None:
        self._store = store
        self._retain = retain
        self._limits = Limits(rows=limit)
        self.log: list[SpoolOffset] = []
        self.batches: dict[int, list[list[Row]]] = {}

    async def start(self) -> None:
        self.planner = SpoolPlanner(self._store, CLOCK, self._retain)
        if not self.log:
            self.log.append(await self.planner.initial_offset())
        if len(self.log) > 1:
            await self._read(self.log[-2], self.log[-1])

    async def run_batch(self) -> bool:
        """Whether there was one."""
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

    async def _read(self, start: SpoolOffset, end: SpoolOffset) -> None:
        rows: list[list[Row]] = []
        for lane in await self.planner.files(start, end):
            rows.append([])
            for file in lane:
                content = await self._store.get(file.name)
                assert content is not None, f"{file.name} is gone"
                table = read_rows(file.name, content, file.rows)
                numbers = map(int, table["sequenceNumber"].to_pylist())
                rows[-1] += zip(table["shardId"].to_pylist(), numbers, strict=True)
        assert self.batches.setdefault(end.batch, rows) == rows, "a batch that is read again has other rows"

    def rows(self, shard: str) -> list[int]:
        """The shard's records as the query took them."""
        return [n for batch in sorted(self.batches) for task in self.batches[batch] for key, n in task if key == shard]


async def opened(store: ObjectStore, lanes: int) -> Generation:
    async def start():
        return {"version": 1, "generation": 1, "subtask": -1, "parallelism": 1, "pinnedStart": None, "shards": {}}

    return await open_generation(store, lanes, start, CLOCK)
