"""Missing rights and a deleted stream end a sink. Outside of a job it then reports each record that is left (K3)."""

import asyncio
import logging

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import FatalKinesisError, RecordPublisherError, TransientError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink

DENIED = FatalKinesisError("PutRecords", "AccessDeniedException", "no")
KINDS = [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}, {"failOnError": "false"}]
NAMES = ["plain", "per key", "aggregates", "without fail_on_error"]


async def put_all(sink, records, keys=3):
    for number in range(records):
        await sink.put(b"%d" % number, f"key-{number % keys}")


@pytest.mark.parametrize("more", KINDS, ids=NAMES)
def test_on_failure_gets_each_record_that_is_left_once(more, caplog):
    async def job():
        fake, failed = FakeKinesis(2), []
        sink = a_sink(fake, more, on_failure=failed.append)
        await sink.__aenter__()
        fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "no")
        await put_all(sink, 700)
        with pytest.raises(FatalKinesisError, match=r"The sink ends; accepted and not acknowledged: 700 records$"):
            await sink.close()
        assert fake.is_closed
        return failed, sink.metrics()

    failed, metrics = run_virtual(job())
    assert (metrics["outstandingRecordsCount"], metrics["numRecordsOutErrors"]) == (0, 700)
    assert sorted(int(record.data) for record in failed) == [*range(700)]
    assert {record.error_code for record in failed} == {"AccessDeniedException"}
    assert {record.error_message for record in failed} == {"PutRecords failed with AccessDeniedException: no"}
    (line,) = [one.message for one in caplog.records if one.levelno == logging.ERROR]
    assert line.endswith("gives up 700 records: PutRecords failed with AccessDeniedException: no")


def test_on_failure_gets_the_records_of_every_open_call_and_of_the_queue():
    async def job():
        fake, failed = FakeKinesis(4), []
        async with a_sink(fake, on_failure=failed.append) as sink:
            fake.latency = 3.0
            for number in range(1_700):
                await sink.put(b"%d" % number, str(number))
            await asyncio.sleep(0.5)
            assert sink.metrics()["openRequests"] >= 2
            fake.delete()
            await asyncio.sleep(10)
            with pytest.raises(RecordPublisherError, match="not acknowledged: 1,700 records"):
                await sink.put(b"x", "k")
        return sorted(int(record.data) for record in failed)

    assert run_virtual(job()) == [*range(1_700)]


@pytest.mark.parametrize("raised_by", ["put", "flush", "close"])
def test_without_on_failure_the_error_says_how_many_records_are_left(raised_by):
    async def job():
        fake = FakeKinesis()
        sink = await a_sink(fake).__aenter__()
        fake.delete()
        await put_all(sink, 5)
        if raised_by == "put":
            await asyncio.sleep(5)
        with pytest.raises(RecordPublisherError) as told:
            await (sink.put(b"x", "k") if raised_by == "put" else getattr(sink, raised_by)())
        await sink.close()
        return type(told.value).__name__, str(told.value), sink.metrics()

    kind, text, metrics = run_virtual(job())
    assert kind == "StreamNotFoundError"
    assert text == "stream 'out' does not exist. The sink ends; accepted and not acknowledged: 5 records"
    assert (metrics["outstandingRecordsCount"], metrics["numRecordsOutErrors"]) == (0, 5)


def test_an_error_that_leaves_no_record_says_nothing_of_records(caplog):
    async def job():
        fake, failed = FakeKinesis(), []
        fake.switch_distribution(by_key=False)
        async with a_sink(fake, {"AggregationEnabled": True}, on_failure=failed.append) as sink:
            fake.listing_error = FatalKinesisError("ListShards", "AccessDeniedException", "no")
            await asyncio.sleep(90)
            with pytest.raises(FatalKinesisError, match=r"ListShards failed with AccessDeniedException: no$"):
                await sink.put(b"x", "k")
        return failed

    assert run_virtual(job()) == []
    assert not [one for one in caplog.records if one.levelno == logging.ERROR]


def test_an_aggregate_that_waits_for_a_listing_is_reported_when_the_listing_is_refused():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = await a_sink(fake, {"AggregationEnabled": True}, on_failure=failed.append).__aenter__()
        fake.split("s0")
        fake.listing_error = FatalKinesisError("ListShards", "AccessDeniedException", "no")
        await put_all(sink, 5)
        with pytest.raises(FatalKinesisError, match="ListShards"):
            await sink.close()
        return sorted(int(record.data) for record in failed)

    assert run_virtual(job()) == [*range(5)]


def test_when_the_close_returns_every_record_was_reported():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = await a_sink(fake, on_failure=failed.append).__aenter__()
        fake.delete()
        await put_all(sink, 7_000)
        with pytest.raises(RecordPublisherError):
            await sink.close()
        return len(failed)

    assert run_virtual(job()) == 7_000


def test_a_close_that_is_cancelled_hides_no_record():
    async def job():
        fake, failed, begun = FakeKinesis(), [], asyncio.Event()
        sink = a_sink(fake, on_failure=lambda record: (failed.append(record), begun.set())[0])
        await sink.__aenter__()
        fake.delete()
        await put_all(sink, 5_000)
        closing = asyncio.create_task(sink.close())
        await begun.wait()
        reported = len(failed)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(1)
        return reported, len(failed)

    reported, all_of_them = run_virtual(job())
    assert reported < all_of_them == 5_000


def test_in_a_job_no_record_is_reported_because_the_next_start_puts_it_again():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = a_sink(fake, fail_on_error=False, on_failure=failed.append)
        await sink.open(SinkContext())
        fake.fail = DENIED
        await put_all(sink, 5)
        with pytest.raises(FatalKinesisError, match=r": no$"):
            await sink.flush()
        await sink.close()
        return failed

    assert run_virtual(job()) == []


def test_an_error_in_an_outage_reports_the_records_that_are_retried():
    async def job():
        fake, failed = FakeKinesis(), []
        async with a_sink(fake, on_failure=failed.append) as sink:
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            await put_all(sink, 600)
            await asyncio.sleep(30)
            assert failed == []
            fake.delete()
            await asyncio.sleep(60)
            assert sink.reasons_not_ready()
            with pytest.raises(RecordPublisherError):
                await sink.flush()
        return sorted(int(record.data) for record in failed)

    assert run_virtual(job()) == [*range(600)]
