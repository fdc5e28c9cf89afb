"""FanOutRecordPublisher and aggregates (P2, P4, S4)."""

import asyncio

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import SHARD, event, record, shard_end
from servers.kpl_aggregates import aggregate, sealed

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


def aggregated(sequence, *parts, continuation=-1):
    data = aggregate(*[("key", part) for part in parts])
    return ReadResponse([record(sequence, data)], 0, None, None if continuation is None else str(sequence))


def test_aggregates_are_deaggregated_and_counted():
    harness = FanOutHarness((aggregated(1, b"a", b"b", b"c"), shard_end()))
    harness.read_all()
    assert harness.batches[0].data == [b"a", b"b", b"c"]
    assert harness.batches[0].sub_sequence_numbers == [0, 1, 2]
    assert harness.batches[0].read_position == SequenceNumber("1")
    assert (harness.metrics.number_of_aggregated_records, harness.metrics.number_of_deaggregated_records) == (1, 3)


def test_p2_a_restart_inside_an_aggregate_drops_what_was_done():
    harness = FanOutHarness((aggregated(1, b"a", b"b", b"c"), shard_end()))
    harness.read_all(StartingPosition.after(SequenceNumber("1", 0)))
    assert harness.ports.positions[0].type is PositionType.AT_SEQUENCE_NUMBER
    assert harness.batches[0].data == [b"b", b"c"]


def test_p2_empty_events_before_the_aggregate_keep_the_position_inside_it():
    harness = FanOutHarness((event(continuation=1),), (aggregated(2, b"a", b"b"), shard_end()))
    harness.read_all(StartingPosition.after(SequenceNumber("2", 0)))
    assert harness.batches[-2].data == [b"b"]


def test_p2_the_rest_of_a_partly_taken_aggregate_is_read_again():
    harness = FanOutHarness((aggregated(1, b"a", b"b", b"c"), event(2)), (aggregated(1, b"a", b"b", b"c"), shard_end()))

    async def first_only(batch):
        await harness.take(batch)
        return SequenceNumber("1", 0) if len(harness.batches) == 1 else batch.read_position

    harness.read_all(consumer=first_only)
    assert harness.ports.positions[1].type is PositionType.AT_SEQUENCE_NUMBER
    assert [batch.data for batch in harness.batches] == [[b"a", b"b", b"c"], [b"b", b"c"], []]


def test_p2_the_position_of_the_last_sub_record_keeps_the_subscription():
    harness = FanOutHarness((aggregated(1, b"a", b"b"), event(2), shard_end()))

    async def by_record(batch):
        last = batch.records[-1:]
        return SequenceNumber(last[0].sequence_number, last[0].sub_sequence_number) if last else None

    harness.read_all(consumer=by_record)
    assert len(harness.ports.calls) == 1


def test_p4_a_batch_that_deaggregates_to_nothing_has_its_position():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    start = StartingPosition.at_timestamp(1_600_000_000_000)
    harness = FanOutHarness((aggregated(1, b"a"),), (aggregated(1, b"a"), shard_end()))

    async def read(response):
        publisher = await harness.factory().create(foreign, start, harness.metrics)

        async def take(batch):
            await harness.take(batch)
            return response

        while await publisher.run(take) is RunResult.INCOMPLETE:
            pass

    run_virtual(read(None))
    assert (len(harness.batches[0]), harness.batches[0].raw_count) == (0, 1)
    assert harness.batches[0].read_position == SequenceNumber("1")
    assert harness.ports.positions == [start, start]
    assert harness.metrics.foreign_sub_records == 2


def test_s4_with_automatic_distribution_no_sub_record_is_foreign():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    harness = FanOutHarness((aggregated(1, b"a"), shard_end()))
    harness.ports.do_distribute_by_key = False

    async def read():
        publisher = await harness.factory().create(foreign, StartingPosition.trim_horizon(), harness.metrics)
        await publisher.run(harness.take)

    run_virtual(read())
    assert harness.batches[0].data == [b"a"]


def test_f1_deaggregating_a_large_aggregate_yields_to_the_event_loop():
    harness = FanOutHarness((aggregated(1, *[b"x"] * 50_000), shard_end()))
    turns = []

    async def other():
        while True:
            turns.append(len(harness.batches))
            await asyncio.sleep(0)

    async def read():
        publisher = await harness.publisher()
        task = asyncio.create_task(other())
        await publisher.run(harness.take)
        task.cancel()

    run_virtual(read())
    assert sum(turn < len(harness.batches) for turn in turns) > 10


LONG = sealed(b"\x0a\x03key" + b"\x1a\x05\x08\x00\x1a\x01x" * 30_000)


def long_event(sequence):
    return ReadResponse([record(sequence, LONG)], 0, None, str(sequence))


def places_of(batches):
    return [(r.sequence_number, r.sub_sequence_number) for batch in batches for r in batch.records]


def test_p6_a_long_aggregate_is_several_batches_of_one_subscription():
    harness = FanOutHarness((long_event(1), event(2), shard_end()))
    harness.read_all()
    assert places_of(harness.batches) == [*(("1", number) for number in range(30_000)), ("2", -1)]
    assert [batch.read_position.sub_sequence for batch in harness.batches[:3]] == [12_287, 24_575, -1]
    assert len(harness.ports.calls) == 1


def test_p2_a_consumer_that_takes_a_part_of_such_a_batch_gets_the_rest_next():
    harness = FanOutHarness((long_event(1), event(2)), (long_event(1), event(2), shard_end()))

    async def hundred_of_the_second(batch):
        await harness.take(batch)
        return SequenceNumber("1", 12_387) if len(harness.batches) == 2 else batch.read_position

    harness.read_all(consumer=hundred_of_the_second)
    assert harness.ports.positions[1] == StartingPosition.after(SequenceNumber("1", 12_387))
    assert places_of(harness.batches[2:]) == [*(("1", number) for number in range(12_388, 30_000)), ("2", -1)]


def test_f5_the_time_of_all_batches_of_an_event_counts_as_unread():
    """The socket is not read between them: 30 s each are 90 s."""
    harness = FanOutHarness((long_event(1), event(2)), (event(2), shard_end()))

    async def slow(batch):
        await asyncio.sleep(30)
        return await harness.take(batch)

    harness.read_all(consumer=slow)
    assert harness.ports.positions[1] == after(1)
    assert places_of(harness.batches) == [*(("1", number) for number in range(30_000)), ("2", -1)]
