"""A sink is told which shards there are, from where on their records are complete, and when they have ended (S1, S2, S5)."""

import asyncio

import pytest

from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.scripted_source import RecordingSink

FIRST, LEFT, RIGHT = (f"shardId-{number:012}" for number in range(3))
HORIZON = StartingPosition.trim_horizon()
PUBLISHERS = pytest.mark.parametrize("publisher", ["POLLING", "EFO"])


class ToldSink(RecordingSink):
    """Notes each call, and each row, in their order."""

    def __init__(self, cost=0.0):
        super().__init__(cost)
        self.told = []
        self.open_ms = {}

    def shard_listed(self, shard, open_ms=None):
        if open_ms is None:
            self.told.append(("listed", shard.shard_id))
        else:
            self.open_ms[shard.shard_id] = open_ms

    def shard_passed(self, shard, position):
        self.told.append(("passed", shard.shard_id, position))

    def shard_started(self, shard, start, *, follows_parents):
        self.told.append(("started", shard.shard_id, start, follows_parents))

    def shard_ended(self, shard, children):
        self.told.append(("ended", shard.shard_id, [child.shard_id for child in children]))

    async def write(self, batch):
        await super().write(batch)
        self.told += [int(data) for data in batch.data]


class Job:
    """A fetcher over the embedded endpoint, on virtual time."""

    def __init__(self, publisher, **properties):
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=100), None)
        self.stream = self.account.create_stream("orders", 1)
        given = {
            "aws.region": "us-east-1",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "c",
        }
        self.properties = Properties({**given, "flink.stream.recordpublisher": publisher, **properties})

    def put(self, *numbers):
        for number in numbers:
            self.stream.put(str(number).encode(), "k")

    async def run(self, sink, script, restore=()):
        """Run until a while after the script, and return the snapshot."""
        fetcher = fetcher_over(MemoryTransport(self.account), self.properties, sink, VirtualClock(), restore=restore)
        try:
            await fetcher.open()
            running = asyncio.create_task(fetcher.run())
            await script()
            await asyncio.sleep(300)
            fetcher.stop()
            await running
            return fetcher.snapshot()
        finally:
            await fetcher.close()


@PUBLISHERS
def test_a_shard_is_listed_then_started_and_its_children_begin_where_it_ended(publisher):
    job, sink = Job(publisher), ToldSink()

    async def script():
        job.put(1)
        await asyncio.sleep(20)
        job.stream.split(FIRST)

    run_virtual(job.run(sink, script))

    assert sink.told[:3] == [("listed", FIRST), ("started", FIRST, HORIZON, False), 1]
    told = [each for each in sink.told[3:] if each[0] != "listed"]
    assert told == [
        ("ended", FIRST, [LEFT, RIGHT]),
        ("started", LEFT, HORIZON, True),
        ("started", RIGHT, HORIZON, True),
    ]
    assert [each[1] for each in sink.told[3:] if each[0] == "listed"] == [LEFT, RIGHT]


@PUBLISHERS
def test_a_restart_goes_on_after_the_last_emitted_record(publisher):
    job, first, second = Job(publisher), ToldSink(), ToldSink()

    async def twice():
        job.put(1)
        state = await job.run(first, lambda: asyncio.sleep(10))
        await job.run(second, lambda: asyncio.sleep(10), (state,))
        return state

    state = run_virtual(twice())

    position = SequenceNumber(state["shards"][f"orders/{FIRST}"]["position"])
    assert second.told == [("listed", FIRST), ("started", FIRST, StartingPosition.after(position), False)]


@PUBLISHERS
def test_an_accepted_gap_is_told_between_the_rows_on_its_sides(publisher):
    """Also if rows from before it are still queued when it is found."""
    job, sink = Job(publisher, **{"flink.state.dataloss": "CONTINUE"}), ToldSink(cost=100.0)

    async def script():
        job.put(1)
        await asyncio.sleep(10)
        job.put(2)
        await asyncio.sleep(10)
        loop = asyncio.get_running_loop()
        loop.suspend(25 * 3600)
        job.put(3)
        loop.suspend(25 * 3600)
        job.put(4)

    run_virtual(job.run(sink, script))

    assert [each for each in sink.told if not (isinstance(each, tuple) and each[0] == "listed")] == [
        ("started", FIRST, HORIZON, False),
        1,
        2,
        ("started", FIRST, HORIZON, False),
        4,
    ]


@PUBLISHERS
def test_a_position_behind_records_that_are_skipped_is_told(publisher):
    job = Job(publisher, **{"flink.deserializer": "json", "flink.deserializer.error": "SKIP"})
    sink = ToldSink()

    async def script():
        job.put(1)
        await asyncio.sleep(10)
        job.stream.put(b"not JSON", "k")
        await asyncio.sleep(10)

    state = run_virtual(job.run(sink, script))

    passed = [each for each in sink.told if isinstance(each, tuple) and each[0] == "passed"]
    position = SequenceNumber(state["shards"][f"orders/{FIRST}"]["position"])
    assert passed == [("passed", FIRST, position)]


def test_only_a_listing_tells_when_a_shard_was_open():
    job, sink = Job("POLLING"), ToldSink()
    began_ms = job.account.clock.now_ms() if hasattr(job.account, "clock") else None

    async def script():
        job.put(1)
        await asyncio.sleep(20)
        job.stream.split(FIRST)

    run_virtual(job.run(sink, script))

    assert set(sink.open_ms) == {FIRST, LEFT, RIGHT}
    assert sink.open_ms[FIRST] < sink.open_ms[LEFT] == sink.open_ms[RIGHT]
    assert began_ms is None or sink.open_ms[FIRST] <= began_ms
