"""Random schedules of MapSink: a job writes, takes checkpoints, crashes and restarts; handlers fail, wait and end themselves. In some a
group has the job: shards go and come back, children begin when the end of their parents is stored, and for a while nothing may be written.

It is checked at each moment that records of one key are handled in order and one at a time, and at each checkpoint that nothing
before the stored position is unhandled, but for records that are too old, or were tried in vain and skipped.
"""

from __future__ import annotations

import asyncio
import random

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.plugins.sinks.map.handled_positions import RETRY_SECONDS
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.testing import VirtualClock

from .schedule_history import PARENTS, STREAM, History, ancestors, history_of


class Life:
    """One life of the job: from a stored state to its end or to a crash."""

    def __init__(self, chance: random.Random, history: History, stored: dict, options: dict, is_group: bool) -> None:
        self.chance = chance
        self.history = history
        self.stored = stored
        self.is_group = is_group
        self.positions = {shard: stored.get(shard, 0) for shard in PARENTS}
        self.started = {shard for shard in PARENTS if not PARENTS[shard] or shard in stored}
        self.begun_in: dict[str, set[str]] = {shard: set() for shard in PARENTS}
        """The records of each shard with which a handler has begun since it is here."""
        self.handled_here: set[str] = set()
        """Records that were handled in this life."""
        self.given_up: dict[str, int] = {}
        """For each shard that is given up, the last record that had begun: none behind it may begin."""
        self.away: set[str] = set()
        """Shards that another process has."""
        self.may_write = True
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
        """These records are done with."""
        self.history.done.update(numbers)
        self.handled_here.update(numbers)

    def begin(self, numbers: list[str]) -> None:
        """A handler begins: it may, and the shards of its records are here."""
        self.history.begin(numbers)
        for shard in PARENTS:
            mine = set(self.history.numbers(shard)) & set(numbers)
            self.begun_in[shard] |= mine
            if late := [each for each in mine if int(each) > self.given_up.get(shard, int(each))]:
                self.history.violations.append(f"{late} of {shard} begin after it was given up")
        if not self.may_write:
            self.history.violations.append(f"{numbers} are handled while nothing may be written")
        for shard in self.away:
            there = {r.sequence_number for batch in self.history.records[shard] for r in batch.records}
            if there & set(numbers):
                self.history.violations.append(f"{numbers} are handled while {shard} is another process's")

    async def reject(self, record: RecordBatch, reason: str) -> None:
        """The job takes a dead letter."""
        self.handled(record.records[0].sequence_number)

    async def run(self, crash_after: int) -> bool:
        """Write everything, with checkpoints in between. Returns False after a crash."""
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
                self.history.end_of_life()
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
        self.history.end_of_life()
        return False

    async def drain(self) -> None:
        """The job is stopped: nothing that a handler has begun is behind a stored position, but for what is left with a failed record."""
        began = asyncio.get_running_loop().time()
        for shard in self.begun_shards_without_begun_children():
            self.given_up[shard] = max(map(int, self.begun_in[shard]), default=0)
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
        self.history.end_of_life()

    def has_failed_at_its_position(self, shard: str) -> bool:
        """Whether the first record behind the stored position was tried in vain."""
        first = self.history.numbers(shard)[self.stored.get(shard, 0) :][:1]
        return bool(set(first) & self.begun_in[shard] - self.handled_here)

    def begun_shards_without_begun_children(self) -> list[str]:
        """A shard of which a descendant has begun is handled as a whole."""
        begun = {shard for shard in PARENTS if self.begun_in[shard]}
        return [shard for shard in PARENTS if not any(shard in ancestors(each) for each in begun)]

    def next_shards(self) -> list[str]:
        """Shards with something to write."""
        self.start_children()
        return [s for s in PARENTS if s in self.started and self.positions[s] < len(self.history.numbers(s))]

    def start_children(self) -> None:
        """A shard starts when its parents are written to their ends; in a group, when these are stored."""
        positions = self.stored if self.is_group else self.positions
        for shard, parents in PARENTS.items():
            known = self.started | self.away
            if shard not in known and all(
                p in known and positions.get(p, 0) >= len(self.history.numbers(p)) for p in parents
            ):
                self.started.add(shard)

    def waits_for_others(self) -> bool:
        """Whether shards are away, or not begun, since the end of a parent is not stored."""
        return bool(self.away) or len(self.started) < len(PARENTS)

    def move_shards(self) -> None:
        """Shards go to other processes, or come back with the position that is stored; sometimes nothing may be written for a while."""
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
        """The job may write again."""
        self.may_write = True

    async def checkpoint(self, may_be_partial: bool, *, stopped: bool = False) -> None:
        """Take a checkpoint; check that all before its positions is handled."""
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
        if not self.is_group:  # in a group the positions of other shards are those of others
            self.stored.clear()
        for key, entry in state["shards"].items():
            shard = key.partition("/")[2]
            self.stored[shard] = ["0", *self.history.numbers(shard)].index(entry["position"])
        for shard, position in self.stored.items():
            numbers = set(self.history.numbers(shard)[:position]) - self.history.done
            if self.history.options["on_failure"] != "DEAD_LETTER":  # there the job has taken all that was given up
                self.history.passed_over |= {each for each in numbers if self.history.may_pass_over(each)}
            missing = numbers - self.history.passed_over
            assert not missing, f"{missing} of {shard} are before the stored position and not handled"
            for parent in ancestors(shard) if position else ():
                assert self.stored.get(parent, 0) >= len(self.history.numbers(parent)), f"{shard} is ahead of {parent}"


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
        "max_age": chance.choice([None, None, 100.0, 1_000.0]),
        "max_bytes": chance.choice([1, 2_000, 1_000_000]),
    }
    if chance.random() < 0.4:
        options |= {"retries": chance.choice([0, 1]), "on_failure": chance.choice(["DEAD_LETTER", "SKIP"])}
    history = history_of(chance, options)
    stored: dict[str, int] = {}
    is_group = chance.random() < 0.4
    for life in range(200):
        crash_after = chance.randint(0, 10) if life < 100 else 10_000
        if await Life(chance, history, stored, options, is_group).run(crash_after):
            break
    assert not history.violations, history.violations
    numbers = {r.sequence_number for batches in history.records.values() for batch in batches for r in batch.records}
    missing = numbers - history.done - history.passed_over
    assert not missing, f"never handled: {sorted(missing, key=int)}"
    return history.calls
