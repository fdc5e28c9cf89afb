"""P6: every read that waits for memory gets it, the lowest next watermark first."""

import asyncio
from contextlib import asynccontextmanager

from recordpublisher.fetcher.pipeline.memory_budget import MemoryBudget, PendingReads
from recordpublisher.fetcher.settings import BudgetLimits

from fakes.shard_entries import entry, watermarked

BATCH = watermarked(1, 2, 3)


class Scene:
    """A budget of two batches for the worker, and of a little more than one for each shard."""

    def __init__(self, worker_batches=2):
        size = BATCH.held_bytes
        self.budget = MemoryBudget(BudgetLimits(worker_batches * size, 2 * size, 100))
        self.reads = PendingReads(self.budget)
        self.entries = {}
        self.tasks = {}

    def full(self, shard_id, head=0):
        one = self.entries[shard_id] = entry(shard_id)
        batch = watermarked(head, head + 1, head + 2)
        self.budget.settle_read(one, batch.held_bytes)
        one.reading.queue.push(batch)
        return one

    async def waits(self, shard_id):
        self.tasks[shard_id] = asyncio.create_task(self.reads.wait(self.entries[shard_id]))
        await asyncio.sleep(0)

    async def emits(self, shard_id):
        one = self.entries[shard_id]
        self.budget.release(one.reading.queue.pop(len(one.reading.queue[0]))[1])
        self.reads.on_emitted(one)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def has_room(self):
        return {shard_id for shard_id, task in self.tasks.items() if task.done()}


@asynccontextmanager
async def scene(**given):
    made = Scene(**given)
    yield made
    for task in made.tasks.values():
        task.cancel()
    await asyncio.gather(*made.tasks.values(), return_exceptions=True)


async def test_a_shard_with_an_empty_queue_gets_memory():
    async with scene() as s:
        s.full("a")
        await s.waits("a")
        await s.emits("a")

        assert s.has_room() == {"a"}


async def test_freed_bytes_are_granted_from_the_lowest_next_watermark_on_until_they_are_used_up():
    async with scene(worker_batches=3) as s:
        s.full("other"), s.full("late", head=50), s.full("early", head=10)
        await s.waits("late")
        await s.waits("early")
        assert s.has_room() == set()
        await s.emits("other")

        assert s.has_room() == {"early"}


async def test_a_held_shard_gets_no_memory_that_others_free():
    async with scene() as s:
        s.full("other"), s.full("held")
        s.entries["held"].status.set_held(True, 1.0)
        await s.waits("held")
        await s.emits("other")

        assert s.has_room() == set()


async def test_a_held_shard_is_tried_again_with_its_own_emission():
    async with scene(worker_batches=4) as s:
        held = s.full("held")
        s.budget.settle_read(held, BATCH.held_bytes)
        held.reading.queue.push(BATCH)
        held.status.set_held(True, 1.0)
        await s.waits("held")
        held.status.set_held(False, 1.0)
        await s.emits("held")

        assert s.has_room() == {"held"}


async def test_the_heartbeat_grants_memory_that_became_free_without_an_emission():
    async with scene(worker_batches=4) as s:
        held = s.full("held")
        held.status.set_held(True, 1.0)
        await s.waits("held")
        held.status.set_held(False, 1.0)
        s.reads.retry_all()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert s.has_room() == {"held"}


async def test_a_cancelled_reader_gets_no_memory_and_delays_no_other():
    async with scene(worker_batches=3) as s:
        s.full("other"), s.full("late", head=50), s.full("early", head=10)
        await s.waits("late")
        await s.waits("early")
        used = s.budget.used
        s.tasks["early"].cancel()
        await s.emits("other")

        assert s.tasks["early"].cancelled()
        assert s.has_room() == {"early", "late"}
        assert s.budget.used == used  # what "other" freed is reserved for "late"


async def test_the_cost_of_an_emission_does_not_depend_on_the_number_of_held_shards():
    async with scene(worker_batches=1_000) as s:
        looked = 0
        s.full("busy")
        for number in range(500):
            s.full(f"held-{number}").status.set_held(True, 1.0)
            await s.waits(f"held-{number}")
        reserve_read = s.budget.reserve_read

        def counting(*arguments):
            nonlocal looked
            looked += 1
            return reserve_read(*arguments)

        s.budget.reserve_read = counting
        await s.emits("busy")

        assert looked == 0
