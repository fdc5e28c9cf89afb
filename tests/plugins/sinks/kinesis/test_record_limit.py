"""How large a record may be, MaxRecordSizeInKiB of the stream: it can change under a running sink."""

import asyncio

import pytest

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.publishers.errors import FatalKinesisError, InvalidRecordError, SinkError
from recordpublisher.publishers.kinesis.ports import StreamSummary
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, now, put_numbers

LARGE = bytes(1_500_000)


def raise_limit(fake):
    fake.summary = StreamSummary(2 * 2**20, distributes_by_key=True)


@pytest.mark.parametrize("seconds", [0, 60])
def test_no_valid_record_is_refused_after_the_limit_was_raised(seconds):
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            await asyncio.sleep(seconds)
            with pytest.raises(InvalidRecordError, match="MaxRecordSizeInKiB"):
                await sink.put(LARGE, "k")
            raise_limit(fake)
            await sink.put(LARGE, "k")
            await sink.flush()
            return len(fake.user_records())

    assert run_virtual(job()) == 1


def test_the_stream_is_asked_once_a_second_for_all_records_that_wait():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, fail_on_error=False) as sink:
            await asyncio.sleep(60)
            asked, began = fake.summaries, now()
            await asyncio.gather(*(sink.put(LARGE, "k") for _ in range(50)))
            await sink._writer.put_all([PendingRecord(LARGE, "k", None, len(LARGE) + 1)] * 50)
            return fake.summaries - asked, now() - began

    asked, seconds = run_virtual(job())
    assert asked == 3
    assert seconds == pytest.approx(2, abs=0.1)


def test_a_record_that_no_stream_takes_is_refused_without_a_question():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, fail_on_error=False) as sink:
            asked = fake.summaries
            await sink.put(bytes(10 * 2**20), "k")
            return fake.summaries - asked, sink.metrics()["numRecordsOutErrors"]

    assert run_virtual(job()) == (0, 1)


def test_a_record_whose_sink_was_closed_while_it_waited_is_not_taken():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            raise_limit(fake)
            putting = asyncio.create_task(sink.put(LARGE, "k"))
            await asyncio.sleep(0.1)
        with pytest.raises(SinkError, match="is closed"):
            await putting

    run_virtual(job())


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_limit_that_was_lowered_costs_the_large_record_and_no_other(seconds):
    async def job():
        fake, failed = FakeKinesis(), []
        fake.summary = StreamSummary(2 * 2**20, distributes_by_key=True)
        async with a_sink(fake, fail_on_error=False, on_failure=failed.append) as sink:
            await asyncio.sleep(seconds)
            fake.summary = StreamSummary(2**20, distributes_by_key=True)
            fake.refuse_above_limit = True
            await put_numbers(sink, range(3))
            await sink.put(b"x" * 1_500_000, "k")
            await put_numbers(sink, range(3, 6))
            await sink.flush()
            return [(len(one.data), one.error_code) for one in failed], len(fake.user_records())

    assert run_virtual(job()) == ([(1_500_000, "ValidationException")], 6)


def test_a_limit_that_is_known_stays_if_the_right_to_read_it_is_taken_away():
    """A question that is denied says nothing about the limit, so records that the stream takes are not refused."""

    async def job():
        fake = FakeKinesis()
        raise_limit(fake)
        async with a_sink(fake, fail_on_error=False) as sink:
            fake.summary_error = FatalKinesisError(
                "DescribeStreamSummary", "AccessDeniedException", "no longer allowed"
            )
            await sink.put(bytes(3 * 2**20), "k")
            await sink.put(LARGE, "k")
            await sink.flush()
            return len(fake.user_records()), sink.metrics()["numRecordsOutErrors"]

    assert run_virtual(job()) == (1, 1)
