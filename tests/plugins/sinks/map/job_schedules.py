"""Random schedules of a job with a `MapSink`.

The job writes, takes checkpoints, crashes and restarts. Handlers fail, wait and cancel themselves. In some schedules a group has the job:
shards go and come back, children begin when the end of their parents is stored, and for a while nothing may be written. Two rules are
checked:

- When a handler begins: the records of one key are handled in order, one at a time.
- At each checkpoint: every record before the stored position is handled, or was too old, or was skipped after its last retry.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.plugins.sinks.map.key_order import RETRY_SECONDS
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import VirtualClock
from recordpublisher.testing.virtual_time import EPOCH_MS

STREAM = "orders"
PARENTS = {"a": (), "b": (), "c": ("a",), "d": ("a",), "e": ("b", "c")}
"""Shard a is split into c and d, then b and c are merged into e."""


def shards_of_keys(chance: random.Random) -> dict[str, list[str]]:
    """Return for each key the shards that it goes through."""
    paths = [["a", "c", "e"], ["a", "d"], ["b", "e"]]
    return {f"key-{number}": chance.choice(paths) for number in range(chance.randint(1, 5))}


@dataclass
class History:
    """What has happened in all runs of the job."""

    records: dict[str, list[RecordBatch]]
    options: dict
    arrivals: dict[str, float] = field(default_factory=dict)
    """When each record arrived (epoch seconds)."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """The records that must be handled before each record."""
    done: set[str] = field(default_factory=set)
    running: dict[str, int] = field(default_factory=dict)
    group: dict[str, str | None] = field(default_factory=dict)
    calls: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    """How often handlers have begun with each record in this run."""
    passed_over: set[str] = field(default_factory=set)
    """Records before a stored position that were too old, or skipped."""
    violations: list[str] = field(default_factory=list)
    """Rules that were broken. A handler cannot raise an error for that, because it would only count as failed."""

    def begin(self, numbers: list[str]) -> None:
        """Check the rules when a handler begins with these records."""
        self.calls += 1
        together: set[str] = set()
        for number in numbers:
            missing = [each for each in self.before[number] if each not in self.done and each not in together]
            if missing := [each for each in missing if not self.may_pass_over(each)]:
                self.violations.append(f"{number} is handled before {missing}")
            if self.options["batch_size"] == 1 and self.is_too_old(number):
                self.violations.append(f"{number} is handled and too old")
            together.add(number)
        self.tried.update(together)
        for group in {self.group[number] for number in numbers} - {None}:
            if self.running.get(group):
                self.violations.append(f"two records of {group} are handled at once")
            self.running[group] = 1

    def end(self, numbers: list[str]) -> None:
        """Remember that the handler has returned, or has raised an error."""
        for group in {self.group[number] for number in numbers} - {None}:
            self.running[group] = 0

    def numbers(self, shard: str) -> list[str]:
        """Return the sequence numbers of a shard, in order."""
        return [record.sequence_number for batch in self.records[shard] for record in batch.records]

    def next_batch(self, shard: str, count: int) -> RecordBatch:
        """Return what is read after `count` records of a shard: the rest of a batch, or a whole batch."""
        for batch in self.records[shard]:
            if count < len(batch):
                return batch.slice(count, len(batch))
            count -= len(batch)
        raise IndexError(shard)

    def is_too_old(self, number: str) -> bool:
        """Return whether the record is older than `max_age` now."""
        max_age = self.options["max_age"]
        return max_age is not None and VirtualClock().now_ms() / 1000 - self.arrivals[number] > max_age

    def may_pass_over(self, number: str) -> bool:
        """Return whether the record may stay unhandled, because it is too old or has failed as often as it may."""
        gives_up = self.options["on_failure"] != "FAIL" and self.tried[number] > self.options["retries"]
        return number in self.passed_over or gives_up or self.is_too_old(number)

    def end_run(self) -> None:
        """Forget the calls that ran, because all handlers were cancelled."""
        self.running.clear()
        self.tried.clear()


def history_of(chance: random.Random, options: dict) -> History:
    """Return random batches for each shard, with sequence numbers that are unique in the stream."""
    keys = shards_of_keys(chance)
    count = 0
    records: dict[str, list[RecordBatch]] = {}
    ordering = options["ordering"]
    history = History(records, options)
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
                history.arrivals[number] = arrival = EPOCH_MS / 1000 + chance.choice([0, 0, 300, 100_000])
                taken.append(UserRecord(b"x", number, arrival, key))
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
            end = SequenceNumber(taken[-1].sequence_number)
            records[shard_id].append(
                RecordBatch(shard, taken, read_position=end, raw_count=len(taken), raw_bytes=len(taken))
            )
    return history


def ancestors(shard_id: str) -> set[str]:
    """Return all ancestors of a shard."""
    return {each for parent in PARENTS[shard_id] for each in (parent, *ancestors(parent))}


class Run:
    """One run of the job, from a stored state to its end or to a crash."""

    def __init__(self, chance: random.Random, history: History, stored: dict, options: dict, is_group: bool) -> None:
        self.chance = chance
        self.history = history
        self.stored = stored
        self.is_group = is_group
        self.positions = {shard: stored.get(shard, 0) for shard in PARENTS}
        self.started = {shard for shard in PARENTS if not PARENTS[shard] or shard in stored}
        self.begun_in: dict[str, set[str]] = {shard: set() for shard in PARENTS}
        """The records of each shard that a handler has begun since the shard is read here."""
        self.handled_here: set[str] = set()
        """Records that were handled in this run."""
        self.released: dict[str, int] = {}
        """The last record that had begun, for each released shard. No record behind it may begin."""
        self.away: set[str] = set()
        """Shards that another process reads."""
        self.may_write = True
        self.sink = MapSink(self.handler(options["batch_size"]), clock=VirtualClock(), **options)

    def handler(self, batch_size: int):
        """Return a handler that fails, waits or cancels itself at random. With lists it also returns random records as failed."""

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
            self.begin(numbers)
            try:
                await act()
                self.handled(*numbers)
            finally:
                self.history.end(numbers)

        async def handle_list(records) -> list:
            numbers = [record.sequence_number for record in records]
            if len(numbers) > batch_size:
                self.history.violations.append(f"a list of {len(numbers)} records")
            self.begin(numbers)
            try:
                await act()
                failed = [record for record in records if self.chance.random() < 0.1]
                first = {self.history.group[r.sequence_number] or r.sequence_number: r for r in reversed(failed)}
                for record in records:
                    failing = first.get(self.history.group[record.sequence_number] or record.sequence_number)
                    if failing is None or int(record.sequence_number) < int(failing.sequence_number):
                        self.handled(record.sequence_number)
                return failed
            finally:
                self.history.end(numbers)

        return handle if batch_size == 1 else handle_list

    def handled(self, *numbers: str) -> None:
        """Remember that these records are handled."""
        self.history.done.update(numbers)
        self.handled_here.update(numbers)

    def begin(self, numbers: list[str]) -> None:
        """Check that a handler may begin, and that the shards of its records are read here."""
        self.history.begin(numbers)
        for shard in PARENTS:
            mine = set(self.history.numbers(shard)) & set(numbers)
            self.begun_in[shard] |= mine
            if late := [each for each in mine if int(each) > self.released.get(shard, int(each))]:
                self.history.violations.append(f"{late} of {shard} begin after the shard was released")
        if not self.may_write:
            self.history.violations.append(f"{numbers} are handled while nothing may be written")
        for shard in self.away:
            there = {r.sequence_number for batch in self.history.records[shard] for r in batch.records}
            if there & set(numbers):
                self.history.violations.append(f"{numbers} are handled while {shard} is another process's")

    async def reject(self, record: RecordBatch, reason: str) -> None:
        """Take a dead letter, as the job does."""
        self.handled(record.records[0].sequence_number)

    async def run(self, crash_after: int) -> bool:
        """Write all records, with checkpoints in between. Return False after a crash or a stop."""
        requested = asyncio.Event()
        context = SinkContext(
            reject=self.reject,
            request_checkpoint=requested.set,
            may_write=lambda: self.may_write,
        )
        await self.sink.open(context)
        await self.checkpoint(False)
        steps = 0
        while self.next_shards() or (self.is_group and self.waits_for_others()):
            steps += 1
            if steps > crash_after:
                await self.sink.close()
                self.history.end_run()
                return False
            if self.is_group:
                self.move_shards()
            if shards := self.next_shards():
                shard = self.chance.choice(shards)
                batch = self.history.next_batch(shard, self.positions[shard])
                await self.sink.write(batch)
                self.positions[shard] += len(batch)
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
        if self.chance.random() < 0.5:
            await self.drain()
            return False
        await asyncio.sleep(self.chance.choice([0, 1, 10_000]))
        await self.checkpoint(True)
        await self.sink.close()
        self.history.end_run()
        return False

    async def drain(self) -> None:
        """Stop the job. Check that begun records behind a stored position were left to the next reader with a failed record."""
        began = asyncio.get_running_loop().time()
        for shard in self.begun_shards_without_begun_children():
            self.released[shard] = max(map(int, self.begun_in[shard]), default=0)
        await self.checkpoint(True, stopped=True)
        await self.checkpoint(False, stopped=True)
        may_leave = asyncio.get_running_loop().time() - began >= RETRY_SECONDS
        left = {shard for shard in self.started if may_leave and self.has_failed_at_its_position(shard)}
        for shard in self.started:
            behind = set(self.history.numbers(shard)[self.stored.get(shard, 0) :]) & self.begun_in[shard]
            assert not behind or left & {shard, *ancestors(shard)}, (
                f"{behind} of {shard} were handled and are handled again"
            )
        await self.sink.close()
        self.history.end_run()

    def has_failed_at_its_position(self, shard: str) -> bool:
        """Return whether the first record behind the stored position was begun and never handled."""
        first = self.history.numbers(shard)[self.stored.get(shard, 0) :][:1]
        return bool(set(first) & self.begun_in[shard] - self.handled_here)

    def begun_shards_without_begun_children(self) -> list[str]:
        """Return the shards that may drop records: a shard with a begun descendant is handled to its end."""
        begun = {shard for shard in PARENTS if self.begun_in[shard]}
        return [shard for shard in PARENTS if not any(shard in ancestors(each) for each in begun)]

    def next_shards(self) -> list[str]:
        """Return the shards that have records to write."""
        self.start_children()
        return [s for s in PARENTS if s in self.started and self.positions[s] < len(self.history.numbers(s))]

    def start_children(self) -> None:
        """Start each shard whose parents are written to their ends. In a group these ends must be stored."""
        positions = self.stored if self.is_group else self.positions
        for shard, parents in PARENTS.items():
            known = self.started | self.away
            if shard not in known and all(
                p in known and positions.get(p, 0) >= len(self.history.numbers(p)) for p in parents
            ):
                self.started.add(shard)

    def waits_for_others(self) -> bool:
        """Return whether shards are away, or wait until the end of a parent is stored."""
        return bool(self.away) or len(self.started) < len(PARENTS)

    def move_shards(self) -> None:
        """Move random shards to other processes, or back with their stored positions. Sometimes forbid writing for a while."""
        for shard in sorted(self.away):
            if self.chance.random() < 0.5:
                self.away.discard(shard)
                self.sink.assigned([f"{STREAM}/{shard}"])
                self.positions[shard] = self.stored.get(shard, 0)
                self.started.add(shard)
        if self.chance.random() < 0.2 and self.started:
            shard = self.chance.choice(sorted(self.started))
            self.started.discard(shard)
            self.away.add(shard)
            self.sink.revoked([f"{STREAM}/{shard}"])
            self.begun_in[shard].clear()
        if self.chance.random() < 0.2 and self.may_write:
            self.may_write = False
            asyncio.get_running_loop().call_later(self.chance.choice([1, 30]), self.give_permission)

    def give_permission(self) -> None:
        """Allow the job to write again."""
        self.may_write = True

    async def checkpoint(self, may_be_partial: bool, *, stopped: bool = False) -> None:
        """Take a checkpoint, and check that all records before its positions are handled."""
        shards = {
            f"{STREAM}/{shard}": {
                "position": ["0", *self.history.numbers(shard)][self.positions[shard]],
                "ended": self.positions[shard] >= len(self.history.numbers(shard)) or None,
                "parents": list(PARENTS[shard]),
            }
            for shard in self.started
        }
        given = Checkpoint({"version": 2, "shards": shards}, may_be_partial, shards.keys() if stopped else ())
        state = await self.sink.flush(given)
        assert state is not None
        if not may_be_partial and not stopped:
            assert state["shards"] == shards
        if not self.is_group:  # in a group, other processes store the positions of the other shards
            self.stored.clear()
        for key, entry in state["shards"].items():
            shard = key.partition("/")[2]
            self.stored[shard] = ["0", *self.history.numbers(shard)].index(entry["position"])
        for shard, position in self.stored.items():
            numbers = set(self.history.numbers(shard)[:position]) - self.history.done
            if self.history.options["on_failure"] != "DEAD_LETTER":  # the job has taken every dead letter
                self.history.passed_over |= {each for each in numbers if self.history.may_pass_over(each)}
            missing = numbers - self.history.passed_over
            assert not missing, f"{missing} of {shard} are before the stored position and not handled"
            for parent in ancestors(shard) if position else ():
                assert self.stored.get(parent, 0) >= len(self.history.numbers(parent)), f"{shard} is ahead of {parent}"


async def play(seed: int) -> int:
    """Run a schedule until a run of the job ends without a crash. Return the number of calls of handlers."""
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
        "max_age": chance.choice([None, None, 100.0, 1_000.0]),
        "max_bytes": chance.choice([1, 2_000, 1_000_000]),
    }
    if chance.random() < 0.4:
        options |= {"retries": chance.choice([0, 1]), "on_failure": chance.choice(["DEAD_LETTER", "SKIP"])}
    history = history_of(chance, options)
    stored: dict[str, int] = {}
    is_group = chance.random() < 0.4
    for run in range(200):
        crash_after = chance.randint(0, 10) if run < 100 else 10_000
        if await Run(chance, history, stored, options, is_group).run(crash_after):
            break
    assert not history.violations, history.violations
    numbers = {r.sequence_number for batches in history.records.values() for batch in batches for r in batch.records}
    missing = numbers - history.done - history.passed_over
    assert not missing, f"never handled: {sorted(missing, key=int)}"
    return history.calls
