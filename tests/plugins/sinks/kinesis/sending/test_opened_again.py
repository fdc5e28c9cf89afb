"""A program may open its sink again: the records that a cancelled close has left are put then."""

import asyncio

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink

KINDS = [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}]
NAMES = ["plain", "per key", "aggregates"]


async def close_for_a_second(sink):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await sink.close()


@pytest.mark.parametrize("more", KINDS, ids=NAMES)
def test_records_of_a_call_that_a_cancelled_close_has_cut_off_are_put_by_the_next_use(more):
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, more)
        await sink.__aenter__()
        fake.latency = 60
        for number in range(5):
            await sink.put(b"%d" % number, "k")
        await close_for_a_second(sink)
        fake.latency = 0.005
        async with asyncio.timeout(60), sink:
            await sink.put(b"5", "k")
            await sink.flush()
        return [data for _, data in fake.user_records()], sink.metrics()["outstandingRecordsCount"]

    assert run_virtual(job()) == ([b"%d" % number for number in range(6)], 0)


def test_an_aggregate_that_waited_for_a_listing_is_finished_by_the_next_use():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {"AggregationEnabled": True})
        await sink.__aenter__()
        fake.split("s0")
        put_records = fake.put_records

        async def put_then_list_slowly(*given):
            answer = await put_records(*given)
            fake.latency = 60
            return answer

        fake.put_records = put_then_list_slowly
        for number in range(20):
            await sink.put(b"%d" % number, f"k{number}")
        await close_for_a_second(sink)
        fake.put_records, fake.latency = put_records, 0.005
        async with asyncio.timeout(60), sink:
            await sink.flush()
        return sorted(int(data) for _, data in fake.user_records()), sink.metrics()["outstandingRecordsCount"]

    assert run_virtual(job()) == ([*range(20)], 0)


def test_a_sink_that_two_tasks_open_at_once_is_opened_once():
    """Otherwise two senders would share the queues, and a close would end only one of them."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        first, second = await asyncio.gather(sink.__aenter__(), sink.__aenter__(), return_exceptions=True)
        await sink.put(b"1", "k")
        await sink.close()
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("kinesis-sink")]
        return first is sink, str(second), left, [data for _, data in fake.user_records()]

    is_open, error, left, put = run_virtual(job())
    assert (is_open, left, put) == (True, [], [b"1"])
    assert "is open already" in error


def test_a_sink_whose_opening_failed_can_be_opened_again():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        fake.listing_error = FatalKinesisError("ListShards", "AccessDeniedException", "no")
        with pytest.raises(FatalKinesisError):
            await sink.__aenter__()
        fake.listing_error = None
        async with sink:
            await sink.put(b"1", "k")
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"1"]


@pytest.mark.parametrize("more", KINDS, ids=NAMES)
def test_records_of_a_program_are_not_forgotten_when_it_gives_the_sink_to_a_job(more):
    """Only the records of an earlier job are: the next start of that job reads them again."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, more)
        await sink.__aenter__()
        fake.latency = 60
        for number in range(5):
            await sink.put(b"%d" % number, "k")
        await close_for_a_second(sink)
        fake.latency = 0.005
        await sink.open(SinkContext())
        await sink.put(b"5", "k")
        await sink.flush()
        await sink.close()
        return [data for _, data in fake.user_records()], sink.metrics()["outstandingRecordsCount"]

    assert run_virtual(job()) == ([b"%d" % number for number in range(6)], 0)
