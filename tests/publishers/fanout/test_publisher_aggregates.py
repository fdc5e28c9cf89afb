"""FanOutRecordPublisher and aggregates (P2, P4, S4)."""

import asyncio

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_service import SHARD, Bench, event, record, shard_end
from servers.kpl_aggregates import aggregate

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


def aggregated(sequence, *parts, go_on=-1):
    data = aggregate(*[("key", part) for part in parts])
    return ReadResponse([record(sequence, data)], 0, None, None if go_on is None else str(sequence))


def test_aggregates_are_taken_apart_and_counted():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), shard_end()))
    bench.read_all()
    assert bench.batches[0].data == [b"a", b"b", b"c"]
    assert bench.batches[0].sub_sequence_numbers == [0, 1, 2]
    assert bench.batches[0].read_position == SequenceNumber("1")
    assert (bench.metrics.number_of_aggregated_records, bench.metrics.number_of_deaggregated_records) == (1, 3)


def test_p2_a_restart_inside_an_aggregate_drops_what_was_done():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), shard_end()))
    bench.read_all(StartingPosition.after(SequenceNumber("1", 0)))
    assert bench.ports.positions[0].type is PositionType.AT_SEQUENCE_NUMBER
    assert bench.batches[0].data == [b"b", b"c"]


def test_p2_empty_events_before_the_aggregate_do_not_lose_the_place_inside_it():
    bench = Bench((event(go_on=1),), (aggregated(2, b"a", b"b"), shard_end()))
    bench.read_all(StartingPosition.after(SequenceNumber("2", 0)))
    assert bench.batches[-2].data == [b"b"]


def test_p2_a_consumer_that_stopped_inside_an_aggregate_gets_the_rest_again():
    bench = Bench((aggregated(1, b"a", b"b", b"c"), event(2)), (aggregated(1, b"a", b"b", b"c"), shard_end()))

    async def first_only(batch):
        await bench.take(batch)
        return SequenceNumber("1", 0) if len(bench.batches) == 1 else batch.read_position

    bench.read_all(consumer=first_only)
    assert bench.ports.positions[1].type is PositionType.AT_SEQUENCE_NUMBER
    assert [batch.data for batch in bench.batches] == [[b"a", b"b", b"c"], [b"b", b"c"], []]


def test_p2_answering_with_the_last_sub_record_is_not_going_back():
    bench = Bench((aggregated(1, b"a", b"b"), event(2), shard_end()))

    async def by_record(batch):
        last = batch.records[-1:]
        return SequenceNumber(last[0].sequence_number, last[0].sub_sequence_number) if last else None

    bench.read_all(consumer=by_record)
    assert len(bench.ports.calls) == 1


def test_p4_a_batch_that_deaggregates_to_nothing_is_handed_over_with_its_position():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    start = StartingPosition.at_timestamp(1_600_000_000_000)
    bench = Bench((aggregated(1, b"a"),), (aggregated(1, b"a"), shard_end()))

    async def read(answer):
        publisher = await bench.factory().create(foreign, start, bench.metrics)

        async def take(batch):
            await bench.take(batch)
            return answer

        while await publisher.run(take) is RunResult.INCOMPLETE:
            pass

    run_virtual(read(None))
    assert (len(bench.batches[0]), bench.batches[0].raw_count) == (0, 1)
    assert bench.batches[0].read_position == SequenceNumber("1")
    assert bench.ports.positions == [start, start]
    assert bench.metrics.foreign_sub_records == 2


def test_s4_with_automatic_distribution_no_sub_record_is_foreign():
    foreign = Shard("orders", SHARD.shard_id, hash_range=HashRange(0, 1))
    bench = Bench((aggregated(1, b"a"), shard_end()))
    bench.ports.do_distribute_by_key = False

    async def read():
        publisher = await bench.factory().create(foreign, StartingPosition.trim_horizon(), bench.metrics)
        await publisher.run(bench.take)

    run_virtual(read())
    assert bench.batches[0].data == [b"a"]


def test_f1_taking_a_large_aggregate_apart_lets_others_run():
    bench = Bench((aggregated(1, *[b"x"] * 50_000), shard_end()))
    turns = []

    async def other():
        while True:
            turns.append(len(bench.batches))
            await asyncio.sleep(0)

    async def read():
        publisher = await bench.publisher()
        task = asyncio.create_task(other())
        await publisher.run(bench.take)
        task.cancel()

    run_virtual(read())
    assert turns.count(0) > 10
