"""KinesisSink in a group and alone, on random schedules: a position is stored after its records are in the stream, however slow."""

import asyncio
import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.records import UserRecord
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.leases.alone_process import AloneProcess
from fakes.leases.group_events import GroupEvents
from fakes.writable_stream import FakeKinesis

FIRST, COUNT = int(os.environ.get("FIRST", "0")), int(os.environ.get("KINESIS_GROUP_SCHEDULES", "12"))
RATES = [None, 2.0, 5.0, 20.0]
"""Records a second that a shard of the target takes."""


class Target(FakeKinesis):
    """Knows how often each record of the source was put."""

    def __init__(self):
        super().__init__(2)
        self.put = Counter()

    def _put(self, entry):
        result = super()._put(entry)
        if result.error_code is None:
            shard, number = entry.data.decode().split(":")
            self.put[shard, int(number)] += 1
        return result


class CopyingSink(KinesisSink):
    """Copies which record of which shard it is."""

    def __init__(self, target, ordering):
        super().__init__(
            "out", {"aws.region": "eu-west-1"}, port=target, clock=VirtualClock(), ordering=ordering, queue_limit=200
        )

    async def write(self, batch):
        named = [
            UserRecord(f"{batch.shard_id}:{each.sequence_number}".encode(), each.sequence_number, each.arrival, f"k{n}")
            for n, each in enumerate(batch.records)
        ]
        await super().write(replace(batch, records=named))

    async def die(self):
        await self._writer.abort()


class CopyGroup(GroupEvents):
    """A schedule; each position that is stored is checked."""

    most_sent = 60

    def __init__(self, chance):
        super().__init__(chance)
        self.is_graceful = chance.random() < 0.5
        self.ordering = chance.choice(["NONE", "PER_KEY"])
        self.target = Target()
        self.target.rate = chance.choice(RATES)
        self.early = []

    def on_stored(self, shard, epoch, position):
        missing = [number for number in range(position + 1) if (shard, number) not in self.target.put]
        if missing:
            self.early.append(f"{position} of {shard} is stored in epoch {epoch}, {missing} are not put")

    def new_sink(self):
        return CopyingSink(self.target, self.ordering)

    async def play(self):
        await self.join()
        for _ in range(self.chance.randint(5, 15)):
            events = [self.send, self.send, self.send, self.join, self.leave, self.split, self.change_rate]
            if not self.is_graceful:
                events += [self.kill]
            await self.chance.choice(events)()
            await asyncio.sleep(self.chance.choice([0, 0.1, 1, 5, 20]))
        self.target.rate = None
        if not self.processes:
            await self.join()
        await self.group.wait_until(lambda: self.group.sent <= self.target.put.keys(), seconds=3_000)
        while self.processes:
            await self.leave()
        assert not self.early, self.early
        assert self.group.sent == set(self.target.put)
        if self.is_graceful:
            assert set(self.target.put.values()) <= {1}, "no process was lost"

    async def kill(self):
        if self.processes:
            process = self.take_out()
            process.store.is_cut = True
            await process.sink.die()
            process.leased.drop_all()
            await process.kill()

    async def change_rate(self):
        self.target.rate = self.chance.choice(RATES)


class CopyAlone(CopyGroup):
    """A job that runs alone: a process that joins follows the one that runs, which was stopped before, or is replaced."""

    async def join(self):
        if self.is_graceful:
            await self.leave()
        process = AloneProcess(self.group, sink=self.new_sink())
        for each in self.processes:
            each.running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self.processes = [await process.start()]

    async def kill(self):
        if self.processes:
            process = self.take_out()
            process.store.is_cut = True
            await process.sink.die()
            await process.kill()
            await self.join()


async def play(schedule, seed):
    async with asyncio.timeout(50_000):
        await schedule(random.Random(seed)).play()


@pytest.mark.parametrize("schedule", [CopyGroup, CopyAlone])
def test_no_position_is_stored_before_its_records_are_put_and_nothing_is_put_twice_while_processes_come_and_go(
    schedule,
):
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run_virtual(play(schedule, seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
