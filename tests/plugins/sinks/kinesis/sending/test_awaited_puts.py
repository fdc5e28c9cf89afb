"""`put(..., wait=True)` returns when its own record is acknowledged, and raises if that one was not put."""

import asyncio
import gc

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import FatalKinesisError, InvalidRecordError, SinkError, TransientError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, now

KINDS = [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}]
NAMES = ["plain", "per key", "aggregates"]
SHORT = {"flink.job.max.outage": 60_000}


@pytest.mark.parametrize("more", KINDS, ids=NAMES)
def test_a_put_that_waits_returns_when_its_record_is_in_the_stream(more):
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake, more) as sink:
            await asyncio.gather(*[sink.put(b"%d" % number, f"k{number % 3}", wait=True) for number in range(100)])
            assert sink.metrics()["outstandingRecordsCount"] == 0
            assert len(fake.user_records()) == 100
            assert not sink._writer._failures.awaited

    run_virtual(job())


def test_a_put_that_waits_shares_its_call_and_waits_for_no_other_record():
    async def job():
        fake = FakeKinesis(2)
        fake.refuse = lambda entry: "InternalFailure" if entry.data == b"bad" else None
        async with a_sink(fake, SHORT, on_failure=lambda failed: None) as sink:
            await sink.put(b"bad", "bad")
            began = now()
            await asyncio.gather(*[sink.put(b"good", f"k{number}", wait=True) for number in range(40)])
            assert now() - began < 1
            assert fake.calls[0] == 41

    run_virtual(job())


@pytest.mark.parametrize("more", KINDS, ids=NAMES)
def test_only_the_put_whose_record_was_given_up_raises(more):
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {**SHORT, **more}) as sink:
            fake.fail = TransientError("PutRecords", "Timeout", "no answer")
            with pytest.raises(SinkError, match=r"key 'k' and 1 byte of data.* was not put into out: Timeout"):
                await sink.put(b"x", "k", wait=True)
            fake.fail = None
            await sink.put(b"y", "k")  # the error was raised above, and not again here
            await sink.flush()
            assert len(fake.user_records()) == 1

    run_virtual(job())


def test_a_flush_that_has_waited_for_the_record_raises_too():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, SHORT) as sink:
            fake.fail = TransientError("PutRecords", "Timeout", "no answer")
            waiting = asyncio.create_task(sink.put(b"x", "k", wait=True))
            await asyncio.sleep(1)
            with pytest.raises(SinkError, match="since the last error: 1 record"):
                await sink.flush()
            with pytest.raises(SinkError):
                await waiting
            fake.fail = None
            await sink.put(b"y", "k")

    run_virtual(job())


def test_the_callback_gets_the_record_too():
    async def job():
        fake, failed = FakeKinesis(), []
        fake.fail = TransientError("PutRecords", "Timeout", "no answer")
        async with a_sink(fake, SHORT, on_failure=failed.append) as sink:
            with pytest.raises(SinkError):
                await sink.put(b"x", "k", wait=True, context=7)
        assert [(record.data, record.context) for record in failed] == [(b"x", 7)]

    run_virtual(job())


def test_after_a_time_limit_the_record_may_still_be_put_and_is_reported_as_any_other():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, SHORT) as sink:
            fake.fail = TransientError("PutRecords", "Timeout", "no answer")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await sink.put(b"x", "k", wait=True)
            with pytest.raises(SinkError, match="1 record"):
                await sink.flush()

    run_virtual(job())


@pytest.mark.parametrize("more", [{}, {"flink.sink.kinesis.failonerror": "false"}], ids=["fail", "count"])
def test_a_fatal_error_ends_every_wait(more):
    async def job():
        fake = FakeKinesis(2)
        sink = a_sink(fake, more)
        await sink.__aenter__()
        fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "no")
        ended = await asyncio.gather(
            *[sink.put(b"x", f"k{number}", wait=True) for number in range(10)], return_exceptions=True
        )
        assert {type(error) for error in ended} == {SinkError}
        assert "AccessDeniedException" in str(ended[0])
        with pytest.raises(FatalKinesisError):
            await sink.close()
        assert sink.metrics()["outstandingRecordsCount"] == 0

    run_virtual(job())


def test_an_error_that_ends_the_sink_of_a_job_is_a_sink_error_of_each_record_that_was_accepted():
    """Its class says that the record was accepted: a program must not put it again as if it was not."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.open(SinkContext())
        fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "no")
        ended = await asyncio.gather(*[sink.put(b"x", key, wait=True) for key in "ab"], return_exceptions=True)
        with pytest.raises(FatalKinesisError):
            await sink.flush()
        await sink.close()
        return ended

    first, second = run_virtual(job())
    assert (type(first), type(second)) == (SinkError, SinkError)
    assert first is not second
    assert str(first) == (
        "the Kinesis sink of out ended before the record was acknowledged; it may be in the stream: PutRecords failed "
        "with AccessDeniedException: no"
    )


def test_a_record_that_ends_the_sink_of_a_job_is_the_reason_for_every_other_wait():
    async def job():
        fake = FakeKinesis(2)
        fake.refuse = lambda entry: "ValidationException" if entry.data == b"bad" else "InternalFailure"
        sink = a_sink(fake)
        await sink.open(SinkContext())
        waiting = asyncio.create_task(sink.put(b"good", "b", wait=True))
        await sink.put(b"bad", "a")
        with pytest.raises(
            SinkError, match=r"sink of out ended before .* 'a' .*was not put into out: ValidationException"
        ):
            await waiting
        with pytest.raises(SinkError):
            await sink.flush()
        await sink.close()

    run_virtual(job())


@pytest.mark.parametrize("more", [{}, {"flink.sink.kinesis.failonerror": "false"}], ids=["fail", "count"])
def test_an_invalid_record_raises_at_once(more):
    async def job():
        async with a_sink(FakeKinesis(), more) as sink:
            with pytest.raises(InvalidRecordError, match="its partition key has 300 characters"):
                await sink.put(b"x", "k" * 300, wait=True)

    run_virtual(job())


def test_a_close_ends_a_wait():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.__aenter__()
        fake.fail = TransientError("PutRecords", "Timeout", "no answer")
        waiting = asyncio.create_task(sink.put(b"x", "k", wait=True))
        await asyncio.sleep(1)
        await sink._writer.abort()
        with pytest.raises(SinkError, match="closed before the record was acknowledged; it may be in the stream"):
            await waiting

    run_virtual(job())


def test_the_end_of_the_loop_ends_a_wait():
    async def job():
        sink = a_sink(FakeKinesis())
        await sink.__aenter__()
        waiting = asyncio.create_task(sink.put(b"x", "k", wait=True))
        await asyncio.sleep(0.01)
        for task in asyncio.all_tasks() - {asyncio.current_task(), waiting}:
            task.cancel()
        with pytest.raises(SinkError, match="was cancelled"):
            await waiting
        with pytest.raises(SinkError):
            await sink.close()

    run_virtual(job())
    gc.collect()  # no future with an error that nothing has retrieved


def test_a_producer_waits_for_the_acknowledgement_of_its_record(kinesis_stream, kinesis_properties):
    with rp.Producer(kinesis_stream.name, kinesis_properties) as producer:
        for number in range(3):
            producer.put(b"%d" % number, "k", wait=True, timeout=20)
            assert producer.metrics()["outstandingRecordsCount"] == 0
            assert producer.metrics()["numRecordsOut"] == number + 1


def test_a_producer_says_that_a_late_record_may_still_be_put(kinesis_stream, kinesis_properties):
    slow = {**kinesis_properties, "RecordMaxBufferedTime": 5000}
    with rp.Producer(kinesis_stream.name, slow) as producer:
        with pytest.raises(
            TimeoutError, match=r"was not acknowledged \(it may still be put\) in 0.2 s: records not acknowledged: 1"
        ):
            producer.put(b"x", "k", wait=True, timeout=0.2)
        producer.flush(timeout=20)
        assert producer.metrics()["numRecordsOut"] == 1
