"""PollingRecordPublisher on virtual time: positions, read budgets, errors (P1, P2, P4, P6, R4, F4)."""

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import (
    DataLossError,
    FatalKinesisError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import run_virtual

from fakes.polling_shard import CHILD, SHARD, FakeShard, Reader, StopError, published, publisher_of, read
from servers.kpl_aggregates import aggregate

BROKEN = TransientError("GetRecords", "InternalFailure", "oh")
THROTTLED = ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")
NOT_FOUND = ResourceNotFoundError("GetRecords", "ResourceNotFoundException", "no such shard")


def test_p1_a_closed_shard_is_read_to_its_end_and_its_children_come_with_the_last_batch():
    fake = FakeShard(b"1", b"2", b"3", closed=True)
    fake.page = 2
    reader, result = read(fake)
    assert result is RunResult.COMPLETE
    assert reader.data == [b"1", b"2", b"3"]
    assert [batch.child_shards for batch in reader.batches] == [(), (CHILD,)]
    assert [batch.millis_behind_latest for batch in reader.batches] == [1000, 0]


def test_p1_a_completed_shard_stays_complete():
    async def twice():
        publisher = publisher_of(fake)
        return await publisher.run(Reader()), await publisher.run(reader)

    fake, reader = FakeShard(b"1", closed=True), Reader()
    assert run_virtual(twice()) == (RunResult.COMPLETE, RunResult.COMPLETE)
    assert reader.batches == []


def test_p1_every_batch_has_the_position_after_it_and_empty_ones_have_none():
    fake = FakeShard(b"1", b"2")
    reader, _ = read(fake, Reader(stop_after=2))
    assert [batch.read_position for batch in reader.batches] == [SequenceNumber("2"), None]
    assert [len(batch) for batch in reader.batches] == [2, 0]


def test_p1_reading_resumes_only_from_the_returned_position():
    fake = FakeShard(b"1", b"2", b"3", closed=True)
    reader, result = read(fake, Reader(results=[SequenceNumber("1")]))
    assert reader.data == [b"1", b"2", b"3", b"2", b"3"]
    assert result is RunResult.COMPLETE
    assert fake.positions[1] == StartingPosition.after(SequenceNumber("1"))


def test_p1_a_batch_whose_position_was_not_returned_is_read_again():
    fake = FakeShard(b"1", b"2")

    async def run():
        publisher = publisher_of(fake)
        with pytest.raises(StopError):
            await publisher.run(Reader(stop_after=1))
        reader = Reader(stop_after=2)
        with pytest.raises(StopError):
            await publisher.run(reader)
        return reader

    assert run_virtual(run()).data == [b"1", b"2"]


def test_p1_a_slow_consumer_is_the_back_pressure():
    fake = FakeShard(*[b"x"] * 3)
    fake.page = 1
    read(fake, Reader(hold=7.0, stop_after=3))
    assert fake.read_at == [0.0, 7.0, 14.0]


def test_p2_a_restart_inside_an_aggregate_resumes_after_the_sub_record():
    fake = FakeShard(b"0", aggregate(("a", b"1"), ("a", b"2"), ("a", b"3")), b"4", closed=True)
    reader, _ = read(fake, position=StartingPosition.after(SequenceNumber("2", 0)))
    assert reader.data == [b"2", b"3", b"4"]
    assert fake.positions[0].type is PositionType.AT_SEQUENCE_NUMBER


def test_p2_a_consumer_may_return_a_position_inside_an_aggregate():
    fake = FakeShard(aggregate(("a", b"1"), ("a", b"2")), closed=True)
    reader, _ = read(fake, Reader(results=[SequenceNumber("1", 0)]))
    assert reader.data == [b"1", b"2", b"2"]


def test_p4_a_timestamp_start_is_kept_after_empty_batches():
    fake = FakeShard()
    start = StartingPosition.at_timestamp(1_700_000_000_123)
    read(fake, Reader(hold=[0, 301, 0], stop_after=4), position=start)
    assert fake.positions == [start, start]


def test_p4_a_batch_that_de_aggregates_to_nothing_still_moves_the_position():
    fake = FakeShard(aggregate())
    reader, _ = read(fake, Reader(stop_after=2))
    assert reader.data == []
    assert reader.batches[0].read_position == SequenceNumber("1")
    assert reader.batches[0].raw_count == 1


def test_p6_the_limit_is_lowered_to_the_read_budget():
    fake = FakeShard(*[b"x" * 640] * 200)

    async def run():
        publisher = publisher_of(fake)
        publisher.set_read_budget(50_000)
        with pytest.raises(StopError):
            await publisher.run(Reader(stop_after=3))

    run_virtual(run())
    assert fake.limits == [4, 50, 50]


def test_p6_at_least_one_record_is_requested():
    fake = FakeShard(b"x" * 10_000, closed=True)

    async def run():
        publisher = publisher_of(fake)
        publisher.set_read_budget(0)
        return await publisher.run(Reader())

    assert run_virtual(run()) is RunResult.COMPLETE
    assert fake.limits == [1]


@pytest.mark.parametrize("api", ["GetRecords", "GetShardIterator"])
def test_r4_transient_errors_of_every_call_are_retried_and_counted(api):
    fake = FakeShard(b"1", closed=True)
    fake.errors[api].extend([BROKEN, THROTTLED, BROKEN])
    metrics = ShardMetrics()
    reader, result = read(fake, metrics=metrics)
    assert (result, reader.data) == (RunResult.COMPLETE, [b"1"])
    assert (metrics.retries, metrics.throttles) == (3, 1)


def test_r4_after_a_throttled_call_a_second_passes():
    fake = FakeShard(b"1", closed=True)
    fake.errors["GetRecords"].append(THROTTLED)
    read(fake)
    assert 1.0 <= fake.read_at[0] <= 1.3


def test_r4_a_response_gives_the_next_read_a_full_retry_budget():
    fake = FakeShard(*[b"x"] * 4, closed=True)
    fake.page = 1

    async def consumer(batch):
        fake.errors["GetRecords"].extend([BROKEN] * 3)
        return await reader(batch)

    reader = Reader()
    assert run_virtual(published(fake, consumer)) is RunResult.COMPLETE


def test_r4_the_exhausted_error_names_call_attempts_and_last_error():
    fake = FakeShard()
    fake.errors["GetRecords"].extend([BROKEN] * 4)
    with pytest.raises(
        RetriesExhaustedError, match=r"GetRecords failed 4 times.*getrecords.maxretries.*InternalFailure"
    ):
        read(fake, maxretries=3)


def test_fatal_errors_are_raised_at_once():
    fake = FakeShard()
    fake.errors["GetRecords"].append(FatalKinesisError("GetRecords", "AccessDeniedException", "no"))
    with pytest.raises(FatalKinesisError):
        read(fake)
    assert fake.read_at == []


@pytest.mark.parametrize("api", ["GetRecords", "GetShardIterator"])
def test_f4_a_shard_that_vanished_before_its_end_is_data_loss_and_never_complete(api):
    fake = FakeShard(b"1")
    fake.errors[api].append(NOT_FOUND)
    fake.listed = [CHILD]
    with pytest.raises(DataLossError, match=r"orders/shardId-000000000000 vanished"):
        read(fake)


def test_f4_a_child_that_is_not_found_and_not_listed_yet_is_waited_for():
    """ChildShards may name a child before every host of the service knows it, also those of ListShards."""
    fake = FakeShard(b"1", closed=True)
    fake.errors["GetShardIterator"].append(NOT_FOUND)
    listings = iter([[SHARD], [SHARD], [SHARD, CHILD]])

    async def list_shards(stream):
        return next(listings)

    fake.list_shards = list_shards
    reader, result = read(fake, shard=CHILD)
    assert result is RunResult.COMPLETE
    assert reader.data == [b"1"]
    assert next(listings, None) is None


def test_f4_a_missing_stream_is_a_stream_not_found_error():
    fake = FakeShard(b"1")
    fake.errors["GetRecords"].append(NOT_FOUND)
    fake.listed = None
    with pytest.raises(StreamNotFoundError, match="orders"):
        read(fake)


def test_f4_not_found_for_a_listed_shard_is_retried():
    fake = FakeShard(b"1", closed=True)
    fake.errors["GetRecords"].extend([NOT_FOUND, NOT_FOUND])
    metrics = ShardMetrics()
    reader, result = read(fake, metrics=metrics)
    assert (result, reader.data, metrics.retries) == (RunResult.COMPLETE, [b"1"], 2)


def test_a1_reads_are_counted():
    fake = FakeShard(b"12345", aggregate(("a", b"1"), ("a", b"2")), closed=True)
    metrics = ShardMetrics()
    read(fake, metrics=metrics)
    size = sum(len(record.data) for record in fake.records)
    assert (metrics.reads, metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (1, 2, 3)
    assert (metrics.bytes_read, metrics.bytes_per_read, metrics.millis_behind_latest) == (size, size, 0)


def test_an_error_of_the_consumer_is_raised_by_run():
    with pytest.raises(ZeroDivisionError):
        run_virtual(published(FakeShard(b"1"), lambda batch: 1 / 0))
