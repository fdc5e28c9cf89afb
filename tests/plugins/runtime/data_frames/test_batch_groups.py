"""Where a read that ends at positions ends."""

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.runtime.data_frames import records_until
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

START = StartingPosition.trim_horizon()


def batch_of(shard_id, *numbers):
    """`(5, 0)` is a sub-record of an aggregate."""
    records = [UserRecord(b"x", str(number), sub_sequence_number=sub) for number, sub in numbers]
    return RecordBatch(Shard("orders", shard_id), records)


async def read(ends, *batches):
    closed = []

    async def source():
        try:
            for number, batch in enumerate(batches):
                yield batch
                closed.append(number)
        finally:
            closed.append("closed")

    shown = [batch async for batch in records_until(source(), {f"orders/{shard}": end for shard, end in ends.items()})]
    taken = [
        (int(number), sub)
        for one in shown
        for number, sub in zip(one.sequence_numbers, one.sub_sequence_numbers, strict=True)
    ]
    return taken, closed


async def test_a_position_within_an_aggregate_is_the_last_sub_record():
    end = ShardState(START, SequenceNumber("5", 1))
    taken, _ = await read({"a": end}, batch_of("a", (4, -1), (5, 0), (5, 1), (5, 2), (6, -1)))
    assert taken == [(4, -1), (5, 0), (5, 1)]


async def test_the_read_ends_when_every_shard_is_past_its_position():
    ends = {"a": ShardState(START, SequenceNumber("1")), "b": ShardState(START, SequenceNumber("2"))}
    batches = [batch_of("a", (1, -1), (2, -1)), batch_of("b", (2, -1)), batch_of("c", (1, -1)), batch_of("b", (3, -1))]
    taken, closed = await read(ends, *batches, batch_of("a", (3, -1)))

    assert taken == [(1, -1), (2, -1)]
    assert closed == [0, 1, 2, "closed"], "the last batch was not asked for"


async def test_a_shard_that_had_ended_is_read_whole_whatever_the_others_are_at():
    ends = {"a": ShardState(START, ended=True), "b": ShardState(START, SequenceNumber("1"))}
    taken, _ = await read(ends, batch_of("b", (1, -1), (2, -1)), batch_of("a", (1, -1), (9, -1)))
    assert taken == [(1, -1), (1, -1), (9, -1)]
