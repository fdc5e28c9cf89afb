"""Outside of a job a sink works again after an outage that was longer than records are retried (K2, K3)."""

import asyncio
import re

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import FatalKinesisError, SinkError, TransientError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, put_numbers

REFUSED = TransientError("PutRecords", "ClientConnectorError", "refused")


async def put_in_an_outage(fake, sink, numbers):
    """Put records, and return when the service is back after it was away for longer than they were retried."""
    fake.fail = REFUSED
    await put_numbers(sink, numbers)
    await asyncio.sleep(60)
    assert sink.metrics()["outstandingRecordsCount"] == 0
    fake.fail = None


def arrived(fake):
    return [int(data) for _, data in fake.user_records()]


@pytest.mark.parametrize("more", [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}])
def test_k3_the_next_put_raises_once_with_the_count_and_the_sink_works_again(more):
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "5s", **more}) as sink:
            await put_in_an_outage(fake, sink, range(3))
            with pytest.raises(SinkError) as told:
                await put_numbers(sink, [3])
            await put_numbers(sink, [4, 5])
            await sink.flush()
        assert sink.metrics()["numRecordsOutErrors"] == 3
        return str(told.value), arrived(fake)

    text, stored = run_virtual(job())
    assert re.search(
        r"(tried \d+ times|waited) for [45678] s (behind others )?\(flink\.job\.max\.outage decides\), was not put into out: ",
        text,
    )
    assert text.endswith(": refused. Not put since the last error: 3 records")
    assert stored == [4, 5]


def test_k3_on_failure_gets_each_record_and_no_call_raises():
    async def job():
        fake, failed = FakeKinesis(), []
        async with a_sink(fake, {"flink.job.max.outage": "5s"}, on_failure=failed.append) as sink:
            await put_in_an_outage(fake, sink, range(3))
            await put_numbers(sink, [3])
            await sink.flush()
        return [record.data for record in failed], arrived(fake)

    assert run_virtual(job()) == ([b"0", b"1", b"2"], [3])


def test_k3_each_flush_that_waits_for_the_records_raises_and_a_later_one_does_not():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "5s"}) as sink:
            fake.fail = REFUSED
            await put_numbers(sink, range(3))
            ended = await asyncio.gather(sink.flush(), sink.flush(), return_exceptions=True)
            fake.fail = None
            await sink.flush()
            return [str(error) for error in ended]

    assert all(text.endswith("Not put since the last error: 3 records") for text in run_virtual(job()))


def test_k3_a_flush_that_comes_later_sends_what_is_queued_before_it_raises():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "5s"}) as sink:
            await put_in_an_outage(fake, sink, [0])
            with pytest.raises(SinkError, match=r"1 record$"):
                await sink.flush()
            await put_numbers(sink, [1])
            fake.refuse = lambda entry: "InternalFailure" if entry.data == b"2" else None
            await put_numbers(sink, [2, 3])
            with pytest.raises(SinkError, match=r"1 record$"):
                await sink.flush()
        return arrived(fake)

    assert run_virtual(job()) == [1, 3]


def test_k3_the_close_raises_what_no_call_has_raised():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {"flink.job.max.outage": "5s"})
        await sink.__aenter__()
        await put_in_an_outage(fake, sink, range(2))
        with pytest.raises(SinkError, match=r"Not put since the last error: 2 records$"):
            await sink.close()
        assert fake.is_closed

    run_virtual(job())


def test_k4_a_listing_that_fails_for_as_long_gives_up_the_aggregates_that_wait_for_it():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "5s", "AggregationEnabled": True}) as sink:
            fake.split("s0")
            fake.listing_error = TransientError("ListShards", "ClientConnectorError", "refused")
            await put_numbers(sink, range(2))
            with pytest.raises(SinkError, match=r"Not put since the last error: 2 records$"):
                await sink.flush()
            fake.listing_error = None
            await asyncio.sleep(60)
            await put_numbers(sink, range(2, 4))
            await sink.flush()
        return arrived(fake)

    assert {2, 3} <= {*run_virtual(job())}


def test_k4_the_sink_survives_an_outage_in_which_the_size_limit_cannot_be_read_after_a_call_was_refused():
    async def job():
        fake, failed = FakeKinesis(), []
        async with a_sink(fake, {"flink.job.max.outage": "5s"}, on_failure=failed.append) as sink:
            fake.fail = FatalKinesisError("PutRecords", "ValidationException", "too large")
            fake.summary_error = TransientError("DescribeStreamSummary", "ClientConnectorError", "refused")
            await put_numbers(sink, [0])
            await asyncio.sleep(60)
            fake.fail = fake.summary_error = None
            await put_numbers(sink, [1])
            await sink.flush()
        return [record.error_message for record in failed], arrived(fake)

    (message,), stored = run_virtual(job())
    assert "DescribeStreamSummary failed with ClientConnectorError: refused" in message
    assert stored == [1]


def test_k3_in_a_job_a_record_that_is_given_up_ends_the_sink():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = a_sink(fake, {"flink.job.max.outage": "5s"}, on_failure=failed.append)
        await sink.open(SinkContext())
        await put_in_an_outage(fake, sink, range(2))
        for _ in range(2):
            with pytest.raises(SinkError, match=r"The sink ends; accepted and not acknowledged: 2 records$"):
                await put_numbers(sink, [3])
        await sink.close()
        assert failed == []

    run_virtual(job())


@pytest.mark.parametrize("more", [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}])
@pytest.mark.parametrize("key", ["k", None], ids=["one key", "many keys"])
def test_k2_records_that_wait_behind_others_are_given_up_in_the_same_outage(more, key):
    async def job():
        fake, loop = FakeKinesis(), asyncio.get_running_loop()
        waited: list[float] = []
        failed: list[int] = []

        def on_failure(record):
            failed.append(int(record.data))
            waited.append(loop.time() - record.context)

        async with a_sink(fake, {"flink.job.max.outage": "20s", **more}, on_failure=on_failure) as sink:
            fake.fail = REFUSED
            for number in range(1500):
                await sink.put(b"%d" % number, key or str(number), context=loop.time())
                if number % 50 == 0:
                    await asyncio.sleep(1)
            await asyncio.sleep(60)
            assert sink.metrics()["outstandingRecordsCount"] == 0
            assert sink.metrics()["numRecordsOutErrors"] == 1500
            fake.fail = None
            await put_numbers(sink, range(1500, 1600))
            await sink.flush()
        return failed, waited, arrived(fake)

    failed, waited, stored = run_virtual(job())
    assert sorted(failed) == [*range(1500)]
    assert key is None or failed == sorted(failed), "in the order of their key"
    assert min(waited) > 17, "pauses with jitter: a record ages with the calls of the records before it"
    assert max(waited) < 60
    assert stored == [*range(1500, 1600)]


def test_k2_records_that_waited_in_an_outage_have_the_whole_time_in_the_next_one():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "20s", "flink.sink.kinesis.ordering": "PER_KEY"}) as sink:
            for _ in range(2):
                fake.fail = REFUSED
                await put_numbers(sink, range(600), "k")
                await put_numbers(sink, range(600), "l")
                await asyncio.sleep(15)
                fake.fail, fake.latency = None, 5.0
                await asyncio.sleep(20)
                fake.latency = 0.005
            await sink.flush()
        assert sink.metrics()["numRecordsOutErrors"] == 0

    run_virtual(job())


def test_a_close_that_waits_says_how_long_the_records_that_are_left_are_retried(caplog):
    async def job():
        fake = FakeKinesis()
        async with a_sink(
            fake, {"flink.job.max.outage": "2min", "flink.job.drain.timeout": "3min"}, on_failure=print
        ) as sink:
            fake.fail = REFUSED
            await put_numbers(sink, [0])
            await asyncio.sleep(100)
            await put_numbers(sink, [1])
            await asyncio.sleep(30)
            assert sink.metrics()["numRecordsOutErrors"] == 1

    run_virtual(job())
    (line,) = [text for text in caplog.messages if text.startswith("the close of the Kinesis sink")]
    left = re.search(r"failed for 2\.\d min, and the oldest records are retried for (\d+) s more", line)
    assert left is not None, line
    assert 70 < int(left[1]) < 120
