"""Random schedules of `MapSink` in a group of workers.

Processes join, leave, are killed, cut off and suspended; shards are split; handlers are slow and fail. Two rules are checked:

- When a handler begins: the records of one key are handled in order, by the owner of their shard.
- At each write of the store: no position is behind an unhandled record, and none goes back within its epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.testing import VirtualClock

from fakes.leases.group_events import GroupEvents

KEYS = 3


@dataclass
class GroupHistory:
    """What the handlers and the store of all processes have seen."""

    ordering: str
    done: Counter[tuple[str, int]] = field(default_factory=Counter)
    owner: dict[str, GroupMapSink] = field(default_factory=dict)
    """The sink that each shard was assigned to last."""
    stored: dict[tuple[str, int], int] = field(default_factory=dict)
    """The stored position of each shard in each epoch."""
    violations: list[str] = field(default_factory=list)

    def begin(self, sink: GroupMapSink, records: list) -> None:
        """Check the rules when a handler begins with these records."""
        together: set[tuple[str, int]] = set()
        for record in records:
            shard, number = record.shard_id, int(record.sequence_number)
            if shard not in sink.shards or self.owner[shard] is not sink:
                self.violations.append(f"{number} of {shard} is handled by a process that does not own it")
            step = {"PER_KEY": KEYS, "PER_SHARD": 1, "NONE": number + 1}[self.ordering]
            before = {(shard, each) for each in range(number % step, number, step)}
            if before - together - self.done.keys():
                self.violations.append(f"{number} of {shard} is handled before one of its key")
            together.add((shard, number))

    def on_stored(self, shard: str, epoch: int, position: int) -> None:
        """Check the rules when the position of a shard was stored."""
        missing = [number for number in range(position + 1) if (shard, number) not in self.done]
        if missing:
            self.violations.append(f"{position} of {shard} is stored before {missing} are handled")
        if position < self.stored.get((shard, epoch), -1):
            self.violations.append(f"the position of {shard} goes back to {position} in epoch {epoch}")
        self.stored[shard, epoch] = position


class GroupMapSink(MapSink):
    """A `MapSink` that gives each record a key, and knows its shards."""

    def __init__(self, chance: random.Random, history: GroupHistory, options: dict) -> None:
        super().__init__(self._handler(options["batch_size"]), clock=VirtualClock(), **options)
        self.shards: set[str] = set()
        self.is_calm = False
        self._last_begun: dict[str, int] = {}
        self._released: dict[str, int] = {}
        """The last record that had begun, for each released shard. No record behind it may begin."""
        self._chance = chance
        self._history = history

    def assigned(self, shards) -> None:
        super().assigned(shards)
        for key in shards:
            self.shards.add(key.partition("/")[2])
            self._last_begun.pop(key, None)
            self._released.pop(key, None)
            self._history.owner[key.partition("/")[2]] = self

    def revoked(self, shards) -> None:
        super().revoked(shards)
        self.shards -= {key.partition("/")[2] for key in shards}

    async def flush(self, checkpoint=None):
        for key in () if checkpoint is None else checkpoint.stopped:
            self._released.setdefault(key, self._last_begun.get(key, -1))
        return await super().flush(checkpoint)

    async def write(self, batch: RecordBatch) -> None:
        keyed = [
            UserRecord(each.data, each.sequence_number, each.arrival, f"key-{int(each.sequence_number) % KEYS}")
            for each in batch.records
        ]
        await super().write(replace(batch, records=keyed))

    def _handler(self, batch_size: int):
        async def handle(records) -> None:
            self._history.begin(self, records)
            for record in records:
                key, number = f"{record.stream}/{record.shard_id}", int(record.sequence_number)
                self._last_begun[key] = max(number, self._last_begun.get(key, -1))
                if number > self._released.get(key, number):
                    self._history.violations.append(f"{number} of {key} begins after its shard was released")
            what = 1.0 if self.is_calm else self._chance.random()
            if what < 0.3:
                await asyncio.sleep(self._chance.choice([0, 0, 0.01, 0.5, 3, 60 * self._chance.random() ** 4]))
            elif what < 0.4:
                raise ValueError("now and then")
            self._history.done.update((each.shard_id, int(each.sequence_number)) for each in records)

        async def handle_one(record) -> None:
            await handle([record])

        return handle_one if batch_size == 1 else handle


class MapGroup(GroupEvents):
    """A random schedule of a group whose workers have a `MapSink`."""

    def __init__(self, chance: random.Random) -> None:
        self.is_graceful = chance.random() < 0.4
        self.options = {
            "ordering": chance.choice(["NONE", "PER_KEY", "PER_SHARD"]),
            "concurrency": chance.choice([1, 3, 64]),
            "batch_size": chance.choice([1, 1, 3]),
            "batch_wait": chance.choice([0.0, 2.0]),
            "retries": 1_000,
            "timeout": None if self.is_graceful else chance.choice([None, 5.0]),
            "max_bytes": chance.choice([2_000, 1_000_000]),
        }
        self.history = GroupHistory(self.options["ordering"])
        super().__init__(chance)
        self.group.source.latency = 2.0

    def on_stored(self, shard: str, epoch: int, position: int) -> None:
        self.history.on_stored(shard, epoch, position)

    def new_sink(self) -> GroupMapSink:
        return GroupMapSink(self.chance, self.history, self.options)

    async def play(self) -> None:
        await self.join()
        for _ in range(self.chance.randint(5, 20)):
            events = [self.send, self.send, self.join, self.leave, self.split, self.checkpoint]
            if not self.is_graceful:
                events += [self.kill, self.cut, self.suspend]
            await self.chance.choice(events)()
            await asyncio.sleep(self.chance.choice([0, 0.1, 3, 20, 60]))
        await self.end()

    async def end(self) -> None:
        """Check that every record is handled, and stored as handled when all workers have left."""
        for process in self.processes:
            process.store.is_cut, process.sink.is_calm = False, True
        if not self.processes:
            await self.join()
            self.processes[0].sink.is_calm = True
        await self.group.wait_until(lambda: self.group.sent <= self.history.done.keys(), seconds=3_000)
        await self.group.wait_until(self.is_stored, seconds=3_000)
        while self.processes:
            await self.leave()
        assert not self.history.violations, self.history.violations
        assert self.is_stored(), self.history.stored
        if self.is_graceful and self.options["batch_size"] == 1:
            repeated = [each for each, count in self.history.done.items() if count > 1]
            assert not repeated, f"{repeated} were handled again, although no process was lost"

    def is_stored(self) -> bool:
        """Return whether the last stored position of each shard is that of its last record."""
        newest = {shard: position for (shard, _), position in sorted(self.history.stored.items())}
        return all(
            newest.get(each.shard.shard_id, -1) == len(each.times) - 1 for each in self.group.source.shards.values()
        )

    async def leave(self) -> None:
        if self.processes:
            process = self.take_out()
            process.store.is_cut, process.sink.is_calm = False, True
            await process.stop()

    async def kill(self) -> None:
        if self.processes:
            process = self.take_out()
            process.store.is_cut = True
            # A write that waits for room must end, as a write that waits for a heartbeat does.
            process.sink._handling.fail(SinkError("killed"))
            process.leased.drop_all()
            await process.sink.close()
            await process.kill()

    async def cut(self) -> None:
        """Cut a process off from the store, or connect it again."""
        if self.processes:
            store = self.chance.choice(self.processes).store
            store.is_cut = not store.is_cut

    async def suspend(self) -> None:
        asyncio.get_running_loop().suspend(self.chance.choice([1, 15, 60, 600]))

    async def checkpoint(self) -> None:
        """Take a checkpoint as a user does."""
        if self.processes and self.is_graceful:
            await self.chance.choice(self.processes).fetcher.checkpoint()


async def play(seed: int) -> int:
    """Run a schedule, and return the number of records that were handled."""
    group = MapGroup(random.Random(seed))
    async with asyncio.timeout(50_000):
        await group.play()
    return group.history.done.total()
