"""ReadIntake: queues, idleness, memory."""

import asyncio
import weakref
from dataclasses import replace

from recordpublisher.fetcher.pipeline.memory_budget import MemoryBudget
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.pipeline.reading import ReadIntake
from recordpublisher.fetcher.pipeline.retention_gaps import RetentionGaps
from recordpublisher.fetcher.settings import BudgetLimits
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import Notices, StoppedClock, entry, marker, shard, watermarked


class Scene:
    def __init__(self, budget=10**6, idle_interval_ms=2_000):
        self.clock, self.notices, self.children = StoppedClock(), Notices(), []
        self.suspension = SuspensionDetector(self.clock, lambda gap: self.entry.reading.idleness.on_suspension())
        limits = BudgetLimits(budget, budget, 100)
        self.intake = ReadIntake(
            MemoryBudget(limits),
            self.clock,
            self.suspension,
            self.children.extend,
            RetentionGaps(None, self.suspension, self.clock, False),
        )
        self.entry = entry(listener=self.notices, idle_ms=idle_interval_ms)
        self.notices.changed.clear()

    async def put(self, batch, after=1.0):
        self.clock.seconds += after
        self.suspension.reset()  # as if the loop ticked all the time
        return await self.intake.output_for(self.entry).put(batch)


async def test_records_are_queued_and_counted_as_used():  # P6
    scene, batch = Scene(), watermarked(1, 2)
    await scene.put(batch)

    assert list(scene.entry.reading.queue) == [batch]
    assert scene.intake.used_bytes >= batch.held_bytes
    assert scene.notices.changed == [scene.entry]


async def test_an_empty_read_without_a_position_is_not_queued():
    scene = Scene()
    await scene.put(watermarked())

    assert not scene.entry.reading.queue


async def test_silence_at_the_tip_makes_a_shard_idle():  # W3
    scene = Scene()
    for _ in range(2):
        await scene.put(watermarked())
    assert not scene.entry.reading.is_idle
    await scene.put(watermarked())

    assert scene.entry.reading.is_idle


async def test_empty_events_of_a_subscription_make_a_shard_idle_too():  # W3, F6
    scene = Scene()
    for _ in range(3):
        await scene.put(marker())

    assert scene.entry.reading.is_idle
    assert not scene.entry.is_active


async def test_a_producer_of_records_that_cannot_be_used_holds_no_other_shard():  # W3, W12
    scene = Scene()
    for _ in range(3):
        await scene.put(replace(marker(), read_position=SequenceNumber("7"), raw_count=2))

    assert scene.entry.reading.is_idle
    assert not scene.entry.is_active


async def test_data_ends_idleness_at_once():  # W4
    scene = Scene()
    for _ in range(3):
        await scene.put(watermarked())
    await scene.put(watermarked(1))

    assert not scene.entry.reading.is_idle


async def test_an_empty_read_behind_the_tip_is_no_silence():  # W3
    scene = Scene()
    for _ in range(10):
        await scene.put(watermarked(behind=5))

    assert not scene.entry.reading.is_idle
    assert scene.entry.reading.tip_ms is None


async def test_with_an_interval_of_minus_one_a_shard_is_never_idle():  # W2
    scene = Scene(idle_interval_ms=-1)
    for _ in range(100):
        await scene.put(watermarked())

    assert not scene.entry.reading.is_idle


async def test_the_tip_is_confirmed_only_with_nothing_queued():  # S5
    scene = Scene()
    await scene.put(watermarked(1))
    await scene.put(watermarked())
    assert scene.entry.reading.tip_ms is None
    batch, _ = scene.entry.take(1)
    await scene.put(watermarked())
    assert scene.entry.reading.tip_ms is None, "it is being written"
    scene.entry.advance(batch, None, 3_500)
    await scene.put(watermarked())

    assert scene.entry.reading.tip_ms == 4_000


async def test_reads_are_counted_by_publishers_only():  # A1
    scene = Scene()
    await scene.put(watermarked(1))

    assert scene.entry.metrics.reads == 0


async def test_a_full_queue_waits_until_something_was_emitted():  # P6
    scene = Scene(budget=1_000)
    waiting = asyncio.create_task(scene.put(watermarked(1, 2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    _, freed = scene.entry.take(2)
    scene.intake.on_emitted(scene.entry, freed)

    assert await waiting == 1_000


async def test_a_cancelled_wait_reserves_nothing():  # R3
    scene = Scene(budget=1_000)
    waiting = asyncio.create_task(scene.put(watermarked(1, 2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    scene.intake.drop(scene.entry)

    assert scene.intake.used_bytes == 0
    assert not scene.entry.reservation.is_requested


def test_a_shard_that_ends_with_queued_records_drains_first():  # S2
    scene = Scene()
    scene.entry.reading.queue.push(watermarked(1))
    scene.intake.output_for(scene.entry).end([shard("child", "a")])

    assert scene.entry.stage is ShardStage.DRAINING
    assert scene.children == [shard("child", "a")]


def test_a_shard_that_ends_with_an_empty_queue_has_ended():  # S2
    scene = Scene()
    scene.intake.output_for(scene.entry).end([])

    assert (scene.entry.stage, scene.entry.state.ended) == (ShardStage.ENDED, True)


async def test_an_emitted_batch_is_freed_while_its_reader_waits_for_memory():  # P6
    scene = Scene(budget=1)
    putting = asyncio.ensure_future(scene.intake.output_for(scene.entry).put(watermarked(1, 2)))
    await asyncio.sleep(0)
    held = weakref.ref(scene.entry.take(2)[0])

    assert (putting.done(), held()) == (False, None)
    putting.cancel()


async def test_a_shard_that_is_no_longer_read_needs_no_memory():
    scene = Scene(budget=1)
    scene.entry.reading.is_finished = True

    assert await scene.put(watermarked(1)) == 0


async def test_a_shard_that_was_read_to_its_end_reserves_nothing():  # P6
    scene, batch = Scene(), watermarked(1)
    await scene.put(batch)
    scene.intake.output_for(scene.entry).end([])

    assert scene.intake.used_bytes == batch.held_bytes


async def test_the_last_read_of_a_closed_shard_is_not_at_the_tip():
    scene = Scene()
    await scene.put(replace(watermarked(1), child_shards=(shard("b"),)))

    assert scene.entry.reading.at_tip
    assert not scene.entry.reading.has_seen_tip
