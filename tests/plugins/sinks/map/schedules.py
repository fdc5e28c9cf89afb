"""Random schedules of MapSink: a job writes, takes checkpoints, crashes and restarts; handlers fail, wait and end themselves.

It is checked at each moment that records of one key are handled in order and one at a time, and at each checkpoint that nothing
before the stored position is unhandled.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import VirtualClock

STREAM = "orders"
PARENTS = {"a": (), "b": (), "c": ("a",), "d": ("a",), "e": ("b", "c")}
"""Shard a is split into c and d, then b and c are merged into e."""


def shards_of_keys(chance: random.Random) -> dict[str, list[str]]:
    """For each key the shards that it goes through."""
    paths = [["a", "c", "e"], ["a", "d"], ["b", "e"]]
    return {f"key-{number}": chance.choice(paths) for number in range(chance.randint(1, 5))}


@dataclass
class History:
    """What has happened, over all lives of the job."""

    ordering: str
    records: dict[str, list[RecordBatch]]
    order: dict[str, list[str]] = field(default_factory=dict)
    """The sequence numbers of each key (PER_KEY) or shard (PER_SHARD), in order."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """The records that must be handled before each one."""
    done: set[str] = field(default_factory=set)
    running: dict[str, int] = field(default_factory=dict)
    group: dict[str, str | None] = field(default_factory=dict)
    calls: int = 0
    may_give_up: bool = False
    """A record that is tried in vain becomes a dead letter, and the next of its key follows."""
    tried: set[str] = field(default_factory=set)
    """The records that handlers have begun with in this life."""
    violations: list[str] = field(default_factory=list)
    """What a handler saw; an error raised there would be an error of the handler."""

    def begin(self, numbers: list[str]) -> None:
        """A handler begins with these records."""
        self.calls += 1
        together: set[str] = set()
        for number in numbers:
            allowed = together | self.tried if self.may_give_up else together
            missing = [each for each in self.before[number] if each not in self.done and each not in allowed]
            if missing:
                self.violations.append(f"{number} is handled before {missing}")
            together.add(number)
        self.tried |= together
        for group in {self.group[number] for number in numbers} - {None}:
            if self.running.get(group):
                self.violations.append(f"two records of {group} are handled at once")
            self.running[group] = 1

    def end(self, numbers: list[str]) -> None:
        """The handler has returned, or raised."""
        for group in {self.group[number] for number in numbers} - {None}:
            self.running[group] = 0

    def end_of_life(self) -> None:
        """All handlers were cancelled."""
        self.running.clear()
        self.tried.clear()


def history_of(chance: random.Random, ordering: str) -> History:
    """Batches for each shard, with sequence numbers that are unique in the stream."""
    keys = shards_of_keys(chance)
    count = 0
    records: dict[str, list[RecordBatch]] = {}
    history = History(ordering, records)
    last: dict[str, list[str]] = {}
    for shard_id in PARENTS:
        records[shard_id] = []
        here = [key for key, path in keys.items() if shard_id in path]
        for _ in range(chance.randint(0, 4)):
            taken = []
            for _ in range(chance.randint(1, 6)):
                key = chance.choice([*here, None]) if ordering != "PER_SHARD" or here else "any"
                count += 1
                number = str(count)
                taken.append(UserRecord(b"x", number, 1_700_000_000.0, key))
                group = {"NONE": None, "PER_KEY": key, "PER_SHARD": shard_id}[ordering]
                history.group[number] = group
                if ordering == "PER_SHARD":
                    lineage = ancestors(shard_id)
                    before = [each for shard in lineage for each in last.get(shard, [])] + last.get(shard_id, [])
                    last.setdefault(shard_id, []).append(number)
                else:
                    before = list(last.get(group, [])) if group is not None else []
                    if group is not None:
                        last.setdefault(group, []).append(number)
                history.before[number] = before
            shard = Shard(STREAM, shard_id, PARENTS[shard_id])
            records[shard_id].append(RecordBatch(shard, taken, raw_count=len(taken), raw_bytes=len(taken)))
    return history


def ancestors(shard_id: str) -> set[str]:
    """All ancestors of a shard."""
    return {each for parent in PARENTS[shard_id] for each in (parent, *ancestors(parent))}


class Life:
    """One life of the job: from a stored state to its end or to a crash."""

    def __init__(self, chance: random.Random, history: History, stored: dict, options: dict) -> None:
        self.chance = chance
        self.history = history
        self.stored = stored
        self.positions = {shard: stored.get(shard, 0) for shard in PARENTS}
        self.started = {shard for shard in PARENTS if not PARENTS[shard] or shard in stored}
        self.sink = MapSink(self.handler(options["batch_size"]), clock=VirtualClock(), **options)

    def handler(self, batch_size: int):
        """Fails, waits or ends itself at random. With lists it returns some records as failed at random."""

        async def act() -> None:
            what = self.chance.random()
            if what < 0.4:
                await asyncio.sleep(self.chance.choice([0, 0, 0.01, 1, 100]))
            elif what < 0.5:
                raise ValueError("now and then")
            elif what < 0.52:
                raise asyncio.CancelledError

        async def handle(record) -> None:
            numbers = [record.sequence_number]
            self.history.begin(numbers)
            try:
                await act()
                self.history.done.update(numbers)
            finally:
                self.history.end(numbers)

        async def handle_list(records) -> list:
            numbers = [record.sequence_number for record in records]
            if len(numbers) > batch_size:
                self.history.violations.append(f"a list of {len(numbers)} records")
            self.history.begin(numbers)
            try:
                await act()
                failed = [record for record in records if self.chance.random() < 0.1]
                first = {self.history.group[r.sequence_number] or r.sequence_number: r for r in reversed(failed)}
                for record in records:
                    failing = first.get(self.history.group[record.sequence_number] or record.sequence_number)
                    if failing is None or int(record.sequence_number) < int(failing.sequence_number):
                        self.history.done.add(record.sequence_number)
                return failed
            finally:
                self.history.end(numbers)

        return handle if batch_size == 1 else handle_list

    async def reject(self, record: RecordBatch, reason: str) -> None:
        """The job takes a dead letter."""
        self.history.done.add(record.records[0].sequence_number)

    async def run(self, crash_after: int) -> bool:
        """Write everything, with checkpoints in between. Returns False after a crash."""
        requested = asyncio.Event()
        await self.sink.open(SinkContext(reject=self.reject, request_checkpoint=requested.set))
        await self.checkpoint(False)
        steps = 0
        while self.next_shards():
            steps += 1
            if steps > crash_after:
                await self.sink.close()
                self.history.end_of_life()
                return False
            shard = self.chance.choice(self.next_shards())
            await self.sink.write(self.history.records[shard][self.positions[shard]])
            self.positions[shard] += 1
            self.start_children()
            if self.chance.random() < 0.4 or requested.is_set():
                requested.clear()
                await self.checkpoint(True)
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.choice([0, 0.01, 2, 500]))
        if self.chance.random() < 0.5:
            await self.checkpoint(False)
            await self.sink.close()
            return True
        await asyncio.sleep(self.chance.choice([0, 1, 10_000]))
        await self.checkpoint(True)
        await self.sink.close()
        self.history.end_of_life()
        return False

    def next_shards(self) -> list[str]:
        """Shards with something to write."""
        self.start_children()
        return [s for s in PARENTS if s in self.started and self.positions[s] < len(self.history.records[s])]

    def start_children(self) -> None:
        """A shard starts when its parents are written to their ends."""
        for shard, parents in PARENTS.items():
            if all(p in self.started and self.positions[p] >= len(self.history.records[p]) for p in parents):
                self.started.add(shard)

    async def checkpoint(self, may_be_partial: bool) -> None:
        """Take a checkpoint; check that all before its positions is handled."""
        shards = {
            f"{STREAM}/{shard}": {
                "position": self.positions[shard],
                "ended": self.positions[shard] >= len(self.history.records[shard]) or None,
                "parents": list(PARENTS[shard]),
            }
            for shard in self.started
        }
        state = await self.sink.flush(Checkpoint({"version": 2, "shards": shards}, may_be_partial))
        assert state is not None
        if not may_be_partial:
            assert state["shards"] == shards
        self.stored.clear()
        self.stored.update({key.partition("/")[2]: entry["position"] for key, entry in state["shards"].items()})
        for shard, position in self.stored.items():
            for batch in self.history.records[shard][:position]:
                missing = [r.sequence_number for r in batch.records if r.sequence_number not in self.history.done]
                assert not missing, f"{missing} of {shard} are before the stored position and not handled"
            for parent in ancestors(shard) if position else ():
                assert self.stored.get(parent, 0) >= len(self.history.records[parent]), f"{shard} is ahead of {parent}"


async def play(seed: int) -> int:
    """Run a schedule until a life ends well. Returns the number of calls of handlers."""
    chance = random.Random(seed)
    ordering = chance.choice(["NONE", "PER_KEY", "PER_SHARD"])
    options = {
        "ordering": ordering,
        "concurrency": chance.choice([1, 2, 3, 64]),
        "batch_size": chance.choice([1, 1, 2, 4]),
        "batch_wait": chance.choice([0.0, 0.5]),
        "retries": 1_000,
        "timeout": chance.choice([None, 5.0]),
        "on_failure": "FAIL",
        "max_bytes": chance.choice([1, 2_000, 1_000_000]),
    }
    if chance.random() < 0.3:
        options |= {"retries": chance.choice([0, 1]), "on_failure": "DEAD_LETTER"}
    history = history_of(chance, ordering)
    history.may_give_up = options["on_failure"] == "DEAD_LETTER"
    stored: dict[str, int] = {}
    for life in range(200):
        crash_after = chance.randint(0, 10) if life < 100 else 10_000
        if await Life(chance, history, stored, options).run(crash_after):
            break
    assert not history.violations, history.violations
    numbers = {r.sequence_number for batches in history.records.values() for batch in batches for r in batch.records}
    assert history.done == numbers, f"never handled: {sorted(numbers - history.done, key=int)}"
    return history.calls
