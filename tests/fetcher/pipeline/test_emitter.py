"""S1, W1, F1: write and advance are one step; the watermark follows; the event loop is never blocked for long."""

import asyncio
from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason, TerminationCondition
from recordpublisher.fetcher.pipeline.emitter import Emitter
from recordpublisher.fetcher.pipeline.memory_budget import MemoryBudget
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.pipeline.reading import ReadIntake
from recordpublisher.fetcher.pipeline.retention_gaps import RetentionGaps
from recordpublisher.fetcher.settings import AlignmentTimes, BudgetLimits, FetcherSettings
from recordpublisher.fetcher.shards.read_state import ReadMoment
from recordpublisher.fetcher.sink import Sink, SinkContext, always_may_write
from recordpublisher.fetcher.watermarks import Alignment, OwnWatermark
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import PoisonedRecord, UserRecord
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedPublisher, ScriptedSource, make_fetcher
from fakes.shard_entries import Notices, entry, marker, watermarked


class Journal(Sink):
    def __init__(self):
        self.calls, self.seen_positions = [], []
        self.entry = None

    async def write(self, batch):
        self.seen_positions.append(self.entry and self.entry.state.position)
        self.calls.append(("write", len(batch)))

    async def watermark(self, watermark):
        self.calls.append(("watermark", watermark))

    async def idle(self):
        self.calls.append(("idle", None))


class Scene:
    def __init__(self, sink=None, clock=None, tracker=None, may_write_now=always_may_write, **bounds):
        clock = clock or VirtualClock()
        self.sink = sink or Journal()
        self.termination = TerminationCondition(Bounds(**bounds))
        budget, suspension = MemoryBudget(BudgetLimits(10**6, 10**6, 100)), SuspensionDetector(clock, lambda gap: None)
        self.alignment = Alignment(tracker or OwnWatermark(), AlignmentTimes(), clock, suspension)
        intake = ReadIntake(budget, clock, suspension, lambda _: None, RetentionGaps(None, suspension, clock, False))
        settings = FetcherSettings.of(Properties({"flink.watermark.emit.interval": 200}))
        self.emitter = Emitter(
            self.sink, self.alignment, intake, clock, suspension, settings, self.poisoned, may_write_now
        )
        self.emitter.start(self.termination)
        self.notices = Notices(self.emitter.on_changed, self.emitter.on_emitted)

    async def poisoned(self, batch):
        self.sink.calls.append(("poisoned", len(batch.poisoned)))

    def queue(self, *batches, shard_id="a"):
        one = entry(shard_id, listener=self.notices)
        for batch in batches:
            one.reading.queue.push(batch)
        self.emitter.on_changed(one)
        return one

    async def run_for(self, seconds):
        running = asyncio.create_task(self.emitter.run(lambda reason: None))
        await asyncio.sleep(seconds)
        self.emitter.stop()
        await running


def test_the_position_moves_only_after_the_write():  # S1
    async def job():
        scene = Scene()
        scene.sink.entry = one = scene.queue(watermarked(1, 2), watermarked(3, first=2))
        await scene.run_for(1)
        return scene.sink.seen_positions, one.state.position

    seen, position = run_virtual(job())
    assert [each and each.sequence for each in seen] == [None, "1"]
    assert position.sequence == "2"


def test_a_failed_write_does_not_move_the_position():  # S1
    class Broken(Journal):
        async def write(self, batch):
            raise OSError("disk full")

    async def job():
        scene = Scene(Broken())
        one = scene.queue(watermarked(1))
        with pytest.raises(OSError, match="disk full"):
            await scene.emitter.run(lambda reason: None)
        return one.state.position

    assert run_virtual(job()) is None


def test_p6_the_memory_of_a_batch_whose_write_failed_is_free_in_the_next_run():
    async def job():
        source, sink = ScriptedSource(), RecordingSink()
        source.add("a", *range(10))
        sink.failure = OSError("disk full")
        fetcher, used = make_fetcher(source, sink), []
        await fetcher.open()
        for _ in range(2):
            with pytest.raises(OSError, match="disk full"):
                await fetcher.run_bounded(Bounds(max_time=5))
            used.append(fetcher.metrics()["worker"]["budgetUsedBytes"])
        await fetcher.close()
        return used

    assert run_virtual(job()) == [0, 0]


def test_a_sink_without_room_is_not_written_to_until_it_wakes_the_emitter_and_the_emitter_can_stop():
    class Full(Journal):
        rooms = 0

        def has_room(self):
            return self.rooms > 0

        async def write(self, batch):
            self.rooms -= 1
            await super().write(batch)

    async def story():
        scene = Scene(Full())
        scene.queue(watermarked(1), watermarked(2, first=1))
        running = asyncio.create_task(scene.run_for(60))
        written = []
        for rooms in (0, 1):
            scene.sink.rooms = rooms
            scene.emitter.wake()
            await asyncio.sleep(1)
            await scene.emitter.wait_for_write()  # nobody keeps the sink to himself
            written.append(len([call for call in scene.sink.calls if call[0] == "write"]))
        await running
        return written

    assert run_virtual(story()) == [0, 1]


def test_markers_are_not_written_to_the_sink():  # F6
    async def job():
        scene = Scene()
        one = scene.queue(marker("7"))
        await scene.run_for(1)
        return scene.sink.calls, one.state.continuation

    assert run_virtual(job()) == ([], "7")


def test_the_watermark_follows_the_records_below_it_at_most_once_an_interval():  # W1
    async def job():
        scene = Scene()
        scene.queue(*(watermarked(number, first=number) for number in range(5)))
        await scene.run_for(1)
        return scene.sink.calls

    assert run_virtual(job()) == [
        ("write", 1),
        ("watermark", 0),
        *[("write", 1)] * 4,
        ("watermark", 4),
    ]


def test_a_run_stops_exactly_at_its_bound():
    async def job():
        scene = Scene(max_records=3)
        one = scene.queue(watermarked(1, 2), watermarked(3, 4, first=2))
        finished = []
        await scene.emitter.run(finished.append)
        return one.emission.records, finished

    assert run_virtual(job()) == (3, [EndReason.MAX_RECORDS])


def test_a_sink_that_never_waits_does_not_block_the_event_loop():  # F1
    class Busy(Journal):
        async def write(self, batch):
            began = clock.monotonic()
            while clock.monotonic() - began < 0.002:
                pass

    clock = SystemClock()

    async def job():
        scene = Scene(Busy(), clock)
        scene.queue(*(watermarked(number, first=number) for number in range(50)))
        turns = 0
        running = asyncio.create_task(scene.emitter.run(lambda reason: None))
        while scene.emitter.records < 50:
            turns += 1
            await asyncio.sleep(0)
        scene.emitter.stop()
        await running
        return turns

    assert asyncio.run(job()) > 5


def test_the_sink_is_notified_of_idleness():  # W1
    async def job():
        scene = Scene()
        one = entry("a", watermark=3)
        one.reading.is_idle = True
        scene.emitter.on_changed(one)
        await scene.run_for(1)
        return scene.sink.calls

    assert run_virtual(job()) == [("idle", None)]


class BusyPublisher(ScriptedPublisher):
    """Never waits for the source, and blocks the loop for 10 ms at each read."""

    def _batch(self, *read):
        asyncio.get_running_loop().suspend(0.01)
        return super()._batch(*read)


class BusySource(ScriptedSource):
    async def create(self, shard, starting_position, metrics):
        return BusyPublisher(self, self.shards[shard.key], starting_position)


class QueueRecordingSink(RecordingSink):
    """Records how much is queued at each write."""

    most_queued = 0

    async def write(self, batch):
        await super().write(batch)
        shards = self.fetcher.metrics()["shards"].values()
        self.most_queued = max(self.most_queued, sum(shard["queuedRecords"] for shard in shards))


def test_busy_readers_do_not_fill_the_queues_of_a_sink_that_never_waits():
    source, sink = BusySource(per_read=10, latency=0), QueueRecordingSink()
    for name in "abcd":
        source.add(name, *range(1000))

    async def read():
        sink.fetcher = make_fetcher(source, sink)
        await sink.fetcher.open()
        await sink.fetcher.run_bounded(Bounds(max_records=4000))
        await sink.fetcher.close()

    run_virtual(read())

    assert len(sink.rows) == 4000
    assert sink.most_queued <= 4 * 2 * 10  # a read or two of each shard


def test_a_sink_that_takes_time_keeps_up_with_many_busy_readers():
    class Costly(QueueRecordingSink):
        async def write(self, batch):
            asyncio.get_running_loop().suspend(0.002)
            await super().write(batch)

    source, sink = BusySource(per_read=10, latency=0), Costly()
    for number in range(20):
        source.add(str(number), *range(500))

    async def read():
        sink.fetcher = make_fetcher(source, sink)
        await sink.fetcher.open()
        await sink.fetcher.run_bounded(Bounds(max_records=20 * 500))
        await sink.fetcher.close()

    run_virtual(read())

    assert len(sink.rows) == 20 * 500
    assert sink.most_queued <= 20 * 5 * 10


def test_bad_records_are_written_before_the_records_behind_them_and_move_the_position():  # S7
    async def job():
        scene = Scene()
        poison = PoisonedRecord(0, UserRecord(b"?", "0"), "why")
        scene.sink.entry = one = scene.queue(
            replace(watermarked(1), poisoned=(poison, poison)), replace(marker("7"), poisoned=(poison,))
        )
        await scene.run_for(1)
        return [call for call in scene.sink.calls if call[0] != "watermark"], one

    calls, one = run_virtual(job())
    assert calls == [("poisoned", 2), ("write", 1), ("poisoned", 1)]
    assert not one.emission.is_writing


def bad_and_good():
    return replace(watermarked(1), poisoned=(PoisonedRecord(0, UserRecord(b"?", "0"), "why"),))


def scene_of_slow_dead_letters(during):
    """A worker's scene: `during(scene, permission)` happens while the bad records are written, which takes a second."""
    permission = [True]
    scene = Scene(may_write_now=lambda: bool(permission))

    async def slow(batch):
        during(scene, permission)
        await asyncio.sleep(1)

    scene.emitter._handle_undeserialized = slow
    return scene, permission


def test_the_permission_is_asked_for_again_after_bad_records_were_written():  # E4
    async def story():
        scene, permission = scene_of_slow_dead_letters(lambda scene, permission: permission.clear())
        one = scene.queue(bad_and_good())
        running = asyncio.create_task(scene.run_for(5))
        await asyncio.sleep(3)
        before = [*scene.sink.calls]
        permission.append(True)
        await running
        return before, scene.sink.calls, one.state.position

    before, after, position = run_virtual(story())
    assert before == []
    assert ("write", 1) in after
    assert position is not None


def test_records_of_a_shard_that_was_lost_while_its_bad_records_were_written_are_not_written():  # E1
    async def story():
        def lose(scene, permission):
            scene.one.remove()
            scene.emitter.on_removed(scene.one.key)

        scene, _ = scene_of_slow_dead_letters(lose)
        scene.one = scene.queue(bad_and_good())
        await scene.run_for(3)
        return scene.sink.calls

    assert not [call for call in run_virtual(story()) if call[0] == "write"]


class Retrying(Journal):
    """Its service answers after ten seconds. `during(scene)` happens after five."""

    def __init__(self, context, during):
        super().__init__()
        self.context, self.during = context, during

    async def write(self, batch):
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_later(5, self.during, self.scene)

        async def post():
            self.calls.append(("post", loop.time() - began))
            if loop.time() - began < 10:
                raise ConnectionError("away")

        await self.context.retry(post, on=OSError)


def scene_of_retries(during):
    """A worker's scene, whose sink calls its service again and again for ten seconds."""
    permission = [True]
    scene = None
    context = SinkContext(may_write=lambda: bool(permission), is_lost=lambda: scene.emitter.has_lost_batch)
    sink = Retrying(context, lambda scene: during(scene, permission))
    sink.scene = scene = Scene(sink, may_write_now=lambda: bool(permission))
    return scene, permission


def posts(calls):
    return [at for name, at in calls if name == "post"]


def test_a_sink_calls_its_service_again_only_with_the_permission_to_write():  # E4
    async def story():
        scene, permission = scene_of_retries(lambda scene, permission: permission.clear())
        one = scene.queue(watermarked(1))
        running = asyncio.create_task(scene.run_for(60))
        await asyncio.sleep(30)
        before, position = posts(scene.sink.calls), one.state.position
        permission.append(True)
        await running
        return before, position, posts(scene.sink.calls), one.state.position

    before, none, after, position = run_virtual(story())
    assert max(before) <= 5
    assert none is None
    assert after[-1] >= 30
    assert position is not None


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_sink_does_not_call_its_service_again_for_a_shard_that_was_lost(comes_back):  # E1, E4
    async def story():
        def lose(scene, permission):
            if not comes_back:
                permission.clear()
            scene.one.remove()
            scene.emitter.on_removed(scene.one.key)

        scene, _ = scene_of_retries(lose)
        scene.one = scene.queue(watermarked(1))
        await scene.run_for(60)
        return posts(scene.sink.calls), scene.one.state.position

    called, position = run_virtual(story())
    assert called
    assert max(called) <= 5
    assert position is None


def test_an_error_of_the_sink_counts_if_the_run_is_stopped_before_the_permission_is_known():  # E4
    """The last checkpoint must not store positions of records that the sink has lost with the error."""

    class Broken(Journal):
        async def write(self, batch):
            permission.clear()
            raise OSError("disk full")

    permission = [True]

    async def story():
        scene = Scene(Broken(), may_write_now=lambda: bool(permission))
        scene.queue(watermarked(1))
        await scene.run_for(1)

    with pytest.raises(OSError, match="disk full"):
        run_virtual(story())


def test_a_hand_over_waits_for_records_whose_bad_ones_were_written():  # E5
    async def story():
        scene, _ = scene_of_slow_dead_letters(lambda scene, permission: scene.one.abandon())
        scene.one = scene.queue(bad_and_good())
        await scene.run_for(3)
        return scene.sink.calls

    assert ("write", 1) in run_virtual(story())


def test_a_batch_that_waits_for_a_flush_holds_the_watermark_while_more_is_read():  # W1, W13
    async def story():
        scene = Scene()
        one = scene.queue(watermarked(1, 2))
        async with scene.emitter.between_writes():  # a flush that takes long
            running = asyncio.create_task(scene.run_for(3))
            await asyncio.sleep(1)
            one.on_read(watermarked(50, first=2), ReadMoment(0, 0, 0, 0))
            reported = scene.alignment.report()
        await running
        return reported, scene.alignment.report()

    assert run_virtual(story()) == (1, 50)


def test_a_batch_that_waits_for_the_permission_holds_the_watermark_while_more_is_read():  # W1, W13, E4
    async def story():
        permission = []
        scene = Scene(may_write_now=lambda: bool(permission))
        one = scene.queue(watermarked(1, 2))
        running = asyncio.create_task(scene.run_for(5))
        await asyncio.sleep(1)
        one.on_read(watermarked(50, first=2), ReadMoment(0, 0, 0, 0))
        await asyncio.sleep(1)
        held, calls = scene.alignment.report(), list(scene.sink.calls)
        permission.append(True)
        await running
        return held, calls, scene.alignment.report(), scene.sink.calls

    held, before, reported, calls = run_virtual(story())
    assert (held, before) == (1, [])
    assert reported == 50
    assert [call for call in calls if call[0] == "write"] == [("write", 2), ("write", 1)]


def test_a_shard_is_not_idle_while_its_last_batch_waits_to_be_written():  # W3, W4
    one = entry()
    one.reading.queue.push(watermarked(1))
    one.take(1)
    one.reading.is_idle = True
    assert one.is_active
    one.advance(watermarked(1), 0, 0)
    assert not one.is_active


class RisingWhileWriting(Journal):
    """A sink during whose writes the global watermark rises."""

    def __init__(self, tracker):
        super().__init__()
        self.tracker = tracker

    async def write(self, batch):
        self.tracker.value += 10


class SetTracker(OwnWatermark):
    value = 5

    def current(self):
        return self.value


def test_records_are_late_by_the_global_watermark_from_before_their_write():  # W13
    async def job():
        tracker = SetTracker()
        scene = Scene(RisingWhileWriting(tracker), tracker=tracker)
        one = scene.queue(watermarked(4, 5, 6))
        await scene.run_for(1)
        return one.metrics.late_after_idle, tracker.value

    assert run_virtual(job()) == (1, 15)


def test_shards_take_turns_batch_by_batch():  # P7
    async def job():
        scene, written = Scene(), []
        scene.sink.write = lambda batch: asyncio.sleep(0, written.append(batch.shard_id))
        for shard_id in ("a", "b"):
            scene.queue(*(watermarked(1, first=number, shard_id=shard_id) for number in range(3)), shard_id=shard_id)
        await scene.run_for(1)
        return written

    assert run_virtual(job()) == ["a", "b", "a", "b", "a", "b"]
