"""The reader state that a publisher leaves for the next one of its shard (R1, R2, P6)."""

import asyncio

import pytest

from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.polling.publisher import MOST_CARRIED_STATES
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.polling_shard import SHARD, FakeShard, Reader

START = StartingPosition.trim_horizon()


class Counting(Reader):
    """Sets `enough` after `reads` batches."""

    def __init__(self, reads):
        super().__init__()
        self.reads, self.enough = reads, asyncio.Event()

    async def __call__(self, batch):
        position = await super().__call__(batch)
        if len(self.batches) == self.reads:
            self.enough.set()
        return position


def read_in_turn(fake, *turns, pause=0.0):
    """Run one publisher for each (position, reads), cancelled while it waits for its next read. Returns the readers."""

    async def run():
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())
        readers = []
        for position, reads in turns:
            readers.append(Counting(reads))
            publisher = await factory.create(SHARD, position, ShardMetrics())
            reading = asyncio.create_task(publisher.run(readers[-1]))
            await readers[-1].enough.wait()
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await asyncio.sleep(pause)
        return readers

    return run_virtual(run())


def test_an_iterator_is_requested_once():  # R2
    fake = FakeShard(b"1", b"2", b"3")
    fake.page = 1
    readers = read_in_turn(fake, (START, 2), (StartingPosition.after(SequenceNumber("2")), 1))

    assert fake.positions == [START]
    assert [reader.data for reader in readers] == [[b"1", b"2"], [b"3"]]


def test_an_iterator_of_another_position_is_not_used():
    fake = FakeShard(b"1", b"2", b"3")
    fake.page = 1
    readers = read_in_turn(fake, (START, 2), (StartingPosition.after(SequenceNumber("1")), 2))

    assert fake.positions == [START, StartingPosition.after(SequenceNumber("1"))]
    assert readers[1].data == [b"2", b"3"]


def test_r2_a_carried_iterator_that_is_too_old_is_replaced():
    fake = FakeShard(b"1", b"2")
    fake.page = 1
    after = StartingPosition.after(SequenceNumber("1"))
    readers = read_in_turn(fake, (START, 1), (after, 1), pause=400.0)

    assert fake.positions == [START, after]
    assert readers[1].data == [b"2"]


def test_empty_responses_are_not_read_again():
    """The iterator advances although the position does not: otherwise many short reads would not get through days without records."""
    fake = FakeShard()
    read_in_turn(fake, (START, 3), (START, 3))

    assert fake.positions == [START]


def test_r1_the_quota_holds_from_one_publisher_to_the_next():
    fake = FakeShard(*[b"x" * 2**20] * 4, quotas=False)  # the service does not throttle here
    fake.page = 2
    read_in_turn(fake, (START, 1), (StartingPosition.after(SequenceNumber("2")), 1))

    assert fake.read_at[1] - fake.read_at[0] >= 1.0


def test_p6_the_first_read_uses_the_carried_record_size():
    fake = FakeShard(*[b"x" * 100] * 5_000)
    read_in_turn(fake, (START, 2), (StartingPosition.after(SequenceNumber("3000")), 1))

    assert fake.limits[-1] > 10 * fake.limits[0]


def test_a_publisher_that_failed_leaves_no_iterator():
    """The iterator may have caused the failure: the next publisher would fail, too."""
    fake = FakeShard(b"1")
    fake.page = 1

    async def run():
        factory = PollingRecordPublisherFactory(Properties({}), service=fake, clock=VirtualClock())
        fake.errors["GetRecords"].append(
            FatalKinesisError("GetRecords", "InvalidArgumentException", "no such iterator")
        )
        with pytest.raises(FatalKinesisError):
            await (await factory.create(SHARD, START, ShardMetrics())).run(Reader())
        return factory._carried_states[SHARD.key]

    assert run_virtual(run()).iterator is None


def test_a_shard_that_was_read_to_its_end_leaves_nothing():
    async def run():
        factory = PollingRecordPublisherFactory(
            Properties({}), service=FakeShard(b"1", closed=True), clock=VirtualClock()
        )
        await (await factory.create(SHARD, START, ShardMetrics())).run(Reader())
        return factory._carried_states

    assert run_virtual(run()) == {}


def test_states_that_no_publisher_takes_do_not_fill_the_memory():
    """In a group, or in Spark, the next publisher of a shard is often made in another process."""

    async def run():
        factory = PollingRecordPublisherFactory(Properties({}), service=FakeShard(b"1"), clock=VirtualClock())
        factory._carried_states.update({f"s/{number}": None for number in range(MOST_CARRIED_STATES)})
        reader = Counting(1)
        reading = asyncio.create_task((await factory.create(SHARD, START, ShardMetrics())).run(reader))
        await reader.enough.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return factory._carried_states

    left = run_virtual(run())
    assert len(left) == MOST_CARRIED_STATES
    assert next(iter(left)) == "s/1"
    assert SHARD.key in left
