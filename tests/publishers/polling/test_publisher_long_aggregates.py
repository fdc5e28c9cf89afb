"""PollingRecordPublisher and an aggregate that becomes several batches (P2, P6)."""

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.testing.virtual_time import run_virtual

from fakes.polling_shard import CHILD, FakeShard, Reader, StopError, publisher_of, read
from servers.kpl_aggregates import sealed

LONG = sealed(b"\x0a\x01a" + b"\x1a\x05\x08\x00\x1a\x01x" * 30_000)


def places_of(reader):
    return [(r.sequence_number, r.sub_sequence_number) for batch in reader.batches for r in batch.records]


def test_p6_the_batches_of_a_long_aggregate_are_one_read_and_the_iterator_stays():
    fake = FakeShard(LONG, b"2", closed=True)
    fake.page = 1
    reader, result = read(fake)
    assert result is RunResult.COMPLETE
    assert places_of(reader) == [*(("1", number) for number in range(30_000)), ("2", -1)]
    assert len(reader.batches) == 4
    assert (len(fake.read_at), len(fake.positions)) == (2, 1)
    assert [batch.child_shards for batch in reader.batches] == [(), (), (), (CHILD,)]


def test_p2_the_rest_of_a_long_aggregate_is_read_again_from_the_returned_position():
    fake = FakeShard(LONG, closed=True)
    reader, result = read(fake, Reader(results=[SequenceNumber("1", 99)]))
    first = len(reader.batches[0])
    assert result is RunResult.COMPLETE
    assert places_of(reader)[first:] == [("1", number) for number in range(100, 30_000)]
    assert fake.positions[1] == StartingPosition.after(SequenceNumber("1", 99))


def test_p2_a_run_that_ends_inside_a_long_aggregate_resumes_there():
    fake = FakeShard(LONG, closed=True)

    async def run():
        publisher = publisher_of(fake)
        first, second = Reader(stop_after=2), Reader()
        with pytest.raises(StopError):
            await publisher.run(first)
        await publisher.run(second)
        return first, second

    first, second = run_virtual(run())
    taken = len(first.batches[0])
    assert places_of(first)[:taken] + places_of(second) == [("1", number) for number in range(30_000)]
