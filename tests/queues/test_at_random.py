"""Properties of acknowledgement under random kills, stops, failures and suspensions: nothing is lost, nothing acknowledged too early."""

import asyncio
import random

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, queue_job
from random_inputs import inputs

RECORDS = 200


class World:
    """A queue, and what is safe outside of every process: rows that were flushed, records that were handled, dead letters."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.queue = FakeQueue(visibility=4)
        self.queue.put(*range(RECORDS), parts=1)
        for number in random_.sample(range(RECORDS), 40):
            self.queue.put(number, parts=random_.choice([2, 3]))
        self.poison = {str(number) for number in random_.sample(range(RECORDS), 20)}
        for number in self.poison:
            self.queue.put(int(number), data=b"{")
        self.safe: set[str] = set(self.poison)
        self.safe_parts: dict[str, set[int]] = {}
        self.is_killed = False

    def keep(self, record):
        if not self.is_killed:
            self.safe_parts.setdefault(record.sequence_number, set()).add(record.sub_sequence_number)

    def is_safe(self, number: str) -> bool:
        message = self.queue.messages.get(number)
        return number in self.safe or message is None or len(self.safe_parts.get(number, ())) == message.parts


class Rows(rp.MemorySink):
    """Rows are safe when they were flushed."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def write(self, batch):
        await asyncio.sleep(self._world.random.choice([0, 0, 0.2]))
        await super().write(batch)

    async def flush(self, checkpoint=None):
        rows = list(self.records)
        await asyncio.sleep(self._world.random.random() / 3)
        for record in rows:
            self._world.keep(record)


def map_sink(world: World) -> rp.MapSink:
    async def handler(record):
        await asyncio.sleep(world.random.choice([0, 0.01, 0.1, 0.1, 9]))
        if world.random.random() < 0.1:
            raise ValueError("again")
        world.keep(record)

    return rp.MapSink(handler, ordering="NONE", concurrency=16, retries=1000, clock=VirtualClock())


async def process(world: World, sink: rp.Sink) -> None:
    """One process, which is stopped, killed, or runs to the tip. Whatever a killed one still does has no effect."""
    fetcher = queue_job(world.queue, sink, OnBadRecord.SKIP, receivers=3)
    await fetcher.open()
    seconds = world.random.uniform(0.1, 8)
    running = asyncio.create_task(fetcher.run_bounded(Bounds(stop_at_tip=True)))
    await asyncio.wait([running], timeout=seconds)
    if world.random.random() < 0.3:
        asyncio.get_running_loop().suspend(world.random.choice([1, 6]))
    if world.random.random() < 0.5:
        world.is_killed = True
        running.cancel()
    fetcher.stop()
    await asyncio.wait([running])
    await fetcher.close()
    if not running.cancelled():
        running.result()


@pytest.mark.parametrize("kind", ["rows", "map"])
@pytest.mark.parametrize("seed", range(inputs(60, 4)))
def test_nothing_is_lost_and_nothing_is_acknowledged_before_it_is_safe(kind, seed):
    world = World(random.Random(f"{kind} {seed}"))
    queue = world.queue
    acknowledge = queue.call

    def checked(name, records):
        if world.is_killed:
            return
        if name == "acknowledge":
            unsafe = [record.sequence_number for record in records if not world.is_safe(record.sequence_number)]
            assert not unsafe, unsafe
        if world.random.random() < 0.1:
            raise TransientError(name, "InternalFailure", "no")
        acknowledge(name, records)

    queue.call = checked
    lives = 0
    while queue.messages:
        for message in queue.messages.values():  # a process is a loop of its own, whose time begins at zero
            message.visible_at = 0.0 if world.random.random() < 0.7 else 1.0
        lives += 1
        world.is_killed = False
        assert lives < 200
        run_virtual(process(world, Rows(world) if kind == "rows" else map_sink(world)))

    assert all(world.is_safe(str(number)) for number in range(RECORDS))
    safe = set(world.safe_parts) | world.poison
    assert safe == {str(number) for number in range(RECORDS)}
