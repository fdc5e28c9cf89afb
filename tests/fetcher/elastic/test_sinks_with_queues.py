"""A sink that sends from a queue of its own sends nothing once others may have its shards (E4), and is told which shards it has."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.scripted_source import RecordingSink


class Handled:
    """A slow handler: each call takes two seconds. Knows when each record was begun."""

    def __init__(self):
        self.begun = []

    async def __call__(self, record):
        self.begun.append((record.shard_id, int(record.data), asyncio.get_running_loop().time()))
        await asyncio.sleep(2)

    @property
    def records(self):
        return {(shard, number) for shard, number, _ in self.begun}


class MapSinkWithTimes(rp.MapSink):
    """Knows when it was assigned shards last."""

    assigned_at = 0.0

    def destination(self):
        return "MapSink"  # others of its group are not of this class

    def assigned(self, shards):
        self.assigned_at = asyncio.get_running_loop().time()


async def join_with_map_sink(group):
    handled = Handled()
    sink = MapSinkWithTimes(handled, concurrency=1, ordering="NONE")
    return await group.join(sink=sink), handled


@pytest.mark.parametrize("is_suspended", [True, False])
def test_a_process_that_may_be_replaced_begins_no_queued_record(is_suspended):
    """Its store does not answer; one of the two is also suspended for longer than the lease, and may not go on when it wakes up."""

    async def story():
        loop = asyncio.get_running_loop()
        group = ElasticProcesses(shards=2)
        first, handled = await join_with_map_sink(group)
        group.send(15)
        await group.wait_until(lambda: len(handled.begun) == 3)
        first.store.is_cut = True
        if is_suspended:
            loop.suspend(DURATION * 2)
        stopped_at = loop.time() + (0 if is_suspended else DURATION * 2 / 3)
        second, others = await join_with_map_sink(group)
        await group.wait_until(lambda: bool(others.begun))
        first.store.is_cut = False
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1, seconds=3_000)
        back_at = first.sink.assigned_at
        await group.wait_until(lambda: handled.records | others.records == group.sent, seconds=3_000)
        await first.stop()
        await second.stop()
        return handled, stopped_at, back_at

    handled, stopped_at, back_at = run_virtual(story())
    assert not [begun for begun in handled.begun if stopped_at <= begun[2] < back_at]
    taken_back = {shard for shard, _, at in handled.begun if at >= back_at}
    assert len(taken_back) <= 1, "what it had queued of the other shard is dropped"


class SinkWithShards(RecordingSink):
    """Knows which shards it was told, and that each write was of one of them."""

    def __init__(self):
        super().__init__()
        self.shards, self.revoked_for = set(), {}

    def assigned(self, shards):
        assert self.shards.isdisjoint(shards)
        self.shards |= set(shards)

    def revoked(self, shards):
        assert self.shards >= set(shards)
        self.shards -= set(shards)
        self.revoked_for |= shards

    async def write(self, batch):
        assert batch.shard.key in self.shards
        await super().write(batch)


def test_a_sink_knows_its_shards_while_they_move():
    async def story():
        group = ElasticProcesses(shards=4)
        sinks = SinkWithShards(), SinkWithShards()
        first = await group.join(sink=sinks[0])
        await group.wait_until(lambda: len(sinks[0].shards) == 4)
        second = await group.join(sink=sinks[1])
        await group.wait_until(lambda: len(sinks[0].shards) == len(sinks[1].shards) == 2)
        group.send()
        await group.wait_until(lambda: len(sinks[0].rows) + len(sinks[1].rows) == len(group.sent))
        await second.stop()
        await group.wait_until(lambda: len(sinks[0].shards) == 4)
        await first.stop()
        return sinks

    assert run_virtual(story())[0].shards == {f"s/shard-{number}" for number in range(4)}


def test_a_process_that_was_replaced_has_no_shards_of_its_earlier_life():
    async def story():
        group = ElasticProcesses(shards=2)
        sink = SinkWithShards()
        first = await group.join(sink=sink)
        await group.wait_until(lambda: len(sink.shards) == 2)
        first.store.is_cut = True
        second = await group.join(sink=SinkWithShards())
        await group.wait_until(lambda: len(second.shards) == 2)
        kept = set(sink.shards)
        first.store.is_cut = False
        await group.wait_until(lambda: len(second.shards) == len(sink.shards) == 1)
        of_second = {f"s/{shard}" for shard in second.shards}
        await first.stop()
        await second.stop()
        return kept, sink.shards & of_second, sink.revoked_for

    lost = dict.fromkeys(["s/shard-0", "s/shard-1"], RevocationReason.LOST)
    assert run_virtual(story()) == (lost.keys(), set(), lost)


def test_a_sink_learns_why_it_has_a_shard_no_longer():
    async def story():
        group = ElasticProcesses(shards=4, streams=("s", "t"))
        sinks = SinkWithShards(), SinkWithShards()
        first = await group.join(("s", "t"), sink=sinks[0])
        await group.wait_until(lambda: len(sinks[0].shards) == 4)
        second = await group.join(("s", "t"), sink=sinks[1])
        await group.wait_until(lambda: len(sinks[0].shards) == len(sinks[1].shards) == 2)
        given = dict(sinks[0].revoked_for)
        await second.stop()
        await group.wait_until(lambda: len(sinks[0].shards) == 4)
        group.source.split("shard-0", "left", "right")
        await group.wait_until(lambda: "s/left" in sinks[0].shards)
        group.source.deleted.add("t")
        await group.wait_until(lambda: sinks[0].shards == {"s/shard-2", "s/left", "s/right"})
        await first.stop()
        return given, sinks[0].revoked_for

    given, found = run_virtual(story())
    assert [*given.values()] == [RevocationReason.GIVEN] * 2
    assert found.items() >= {
        ("s/shard-0", RevocationReason.ENDED),
        ("t/shard-1", RevocationReason.DELETED),
        ("t/shard-3", RevocationReason.DELETED),
    }


def test_a_full_queue_with_a_handler_that_hangs_keeps_no_other_shard():
    """The sink takes nothing more, and three of four shards have nothing in its queue: those that should move do."""

    async def hang(record):
        await asyncio.Event().wait()

    async def story():
        group = ElasticProcesses(shards=4)
        sink = rp.MapSink(hang, concurrency=1, max_bytes=1)
        first = await group.join(sink=sink)
        await group.wait_until(lambda: len(first.shards) == 4)
        full = next(iter(group.source.shards.values()))
        full.put(0)
        await group.wait_until(lambda: sink.metrics()["outstanding"] == 1)
        group.send(1)
        second, others = await join_with_map_sink(group)
        await group.wait_until(lambda: bool(others.records))
        left = full.shard.shard_id not in second.shards
        first.running.cancel()
        await asyncio.gather(first.running, return_exceptions=True)
        await second.stop()
        return left

    assert run_virtual(story())


def test_a_job_whose_worker_fails_does_not_wait_for_its_queue():
    """The queue is full; only handlers would make room, and without heartbeats none may begin."""

    def fail():
        raise StateError("the group's table cannot be read")

    async def story():
        group = ElasticProcesses(shards=1)
        handled = Handled()
        process = await group.join(sink=rp.MapSink(handled, concurrency=1, max_bytes=1))
        group.send(40)
        await group.wait_until(lambda: len(handled.begun) == 2)
        process.store._check = fail
        async with asyncio.timeout(300):
            await asyncio.gather(process.running, return_exceptions=True)
            await process.fetcher.close()
        return process.running.exception()

    assert isinstance(run_virtual(story()), StateError)


class SinkWithQueue(RecordingSink):
    """Writes from its queue when it is flushed, which waits until the test lets it, or until nothing is left."""

    def __init__(self):
        super().__init__()
        self.queue = []
        self.is_flushing, self.may_flush = asyncio.Event(), asyncio.Event()
        self.may_flush.set()

    async def write(self, batch):
        self.queue.append(batch)

    def revoked(self, shards):
        self.queue = [batch for batch in self.queue if batch.shard.key not in shards]
        self.may_flush.set()

    async def flush(self, checkpoint=None):
        self.is_flushing.set()
        await self.may_flush.wait()
        for batch in self.queue:
            await super().write(batch)
        self.queue = []


async def seal_record_of(process):
    """What a worker does that is killed before it seals the positions."""
    documents = GroupStore(process.store)
    await documents.seal_record((await documents.read_records(consistent=True))[process.worker.name])


async def refuse_heartbeats_of(process):
    """Waiting for the store does not help; the process ends, and the next one starts."""

    async def refuse():
        raise StateError("access is denied")

    process.worker._heartbeat.write = refuse


@pytest.mark.parametrize("end_life", [seal_record_of, refuse_heartbeats_of])
def test_a_worker_that_ends_while_its_sink_is_flushed_stores_no_positions_of_what_is_dropped(end_life):
    async def story():
        group, sink = ElasticProcesses(shards=1), SinkWithQueue()
        process = await group.join(sink=sink)
        await group.wait_until(lambda: len(process.shards) == 1)
        sink.is_flushing.clear()
        sink.may_flush.clear()
        group.send(3)
        await group.wait_until(lambda: bool(sink.queue) and sink.is_flushing.is_set())
        await asyncio.sleep(6)  # all is in the queue, and in the positions of the next checkpoint
        checkpoint = asyncio.ensure_future(process.fetcher.checkpoint())
        await end_life(process)
        await sink.may_flush.wait()
        await asyncio.gather(checkpoint, return_exceptions=True)
        if end_life is refuse_heartbeats_of:
            await asyncio.gather(process.running, return_exceptions=True)
            process = await group.join(sink=sink)
        await group.wait_until(lambda: set(sink.rows) == group.sent)
        await process.stop()

    run_virtual(story())
