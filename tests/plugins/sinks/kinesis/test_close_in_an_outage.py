"""A sink outside of a job that is closed in an outage gives up what is left after the drain timeout, and reports each record (K3)."""

import asyncio
import logging

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import SinkError, TransientError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, now, put_numbers

REFUSED = TransientError("PutRecords", "ClientConnectorError", "refused")
GIVEN = {"flink.job.drain.timeout": "10s"}
KINDS = [{}, {"flink.sink.kinesis.ordering": "PER_KEY"}, {"AggregationEnabled": True}]


async def close_in_an_outage(fake, sink, records=700, keys=3):
    """Close while calls fail, some of them for an hour. Return how long the close took (seconds)."""
    fake.fail = REFUSED
    for number in range(records):
        await sink.put(b"%d" % number, f"key-{number % keys}")
    await asyncio.sleep(3)
    fake.latency = 3_600
    await asyncio.sleep(5)
    began = now()
    await sink.close()
    return now() - began


@pytest.mark.parametrize("more", KINDS, ids=["plain", "per key", "aggregates"])
def test_each_record_that_is_left_goes_to_on_failure_after_the_drain_timeout(more, caplog):
    async def job():
        fake, failed = FakeKinesis(2), []
        sink = await a_sink(fake, {**GIVEN, **more}, on_failure=failed.append).__aenter__()
        took = await close_in_an_outage(fake, sink)
        assert fake.is_closed
        return failed, took, sink.metrics()

    failed, took, metrics = run_virtual(job())
    assert sorted(int(record.data) for record in failed) == [*range(700)]
    assert took == pytest.approx(10, abs=1)
    assert (metrics["outstandingRecordsCount"], metrics["numRecordsOutErrors"]) == (0, 700)
    assert {record.error_code for record in failed} == {"SinkClosed"}
    assert "for 10 s (flink.job.drain.timeout): PutRecords failed" in failed[0].error_message
    (line,) = [one.message for one in caplog.records if one.levelno == logging.ERROR]
    assert "the Kinesis sink of out ends, and gives up 700 records: no record was acknowledged for 10 s" in line
    if "ordering" in str(more):
        for key in range(3):
            of_key = [int(record.data) for record in failed if record.partition_key == f"key-{key}"]
            assert of_key == sorted(of_key)


def test_without_on_failure_the_close_raises_with_the_count():
    async def job():
        fake = FakeKinesis()
        sink = await a_sink(fake, GIVEN).__aenter__()
        with pytest.raises(
            SinkError, match=r"SinkClosed: no record was .*\. Not put since the last error: 700 records$"
        ):
            await close_in_an_outage(fake, sink)
        assert fake.is_closed

    run_virtual(job())


def test_a_close_waits_longer_than_the_drain_timeout_while_records_are_acknowledged():
    async def job():
        fake = FakeKinesis()
        sink = await a_sink(fake, {**GIVEN, "RateLimit": 1}).__aenter__()
        await put_numbers(sink, range(400))
        began = now()
        await sink.close()
        return now() - began, len(fake.user_records())

    took, stored = run_virtual(job())
    assert stored == 400
    assert took > 30


def test_a_close_whose_outage_ends_in_time_loses_nothing():
    async def job():
        fake = FakeKinesis()
        sink = await a_sink(fake, GIVEN).__aenter__()
        fake.fail = REFUSED
        await put_numbers(sink, range(700))
        asyncio.get_running_loop().call_later(8, setattr, fake, "fail", None)
        await sink.close()
        return len(fake.user_records())

    assert run_virtual(job()) == 700


def test_an_aggregate_that_waits_for_a_listing_is_given_up_too():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = a_sink(fake, {**GIVEN, "AggregationEnabled": True}, on_failure=failed.append)
        async with sink:
            fake.split("s0")
            fake.listing_error = TransientError("ListShards", "ClientConnectorError", "refused")
            await put_numbers(sink, range(5))
        assert sink.metrics()["outstandingRecordsCount"] == 0
        return sorted(int(record.data) for record in failed)

    assert run_virtual(job()) == [*range(5)]


def test_in_a_job_the_close_gives_up_nothing():
    async def job():
        fake, failed = FakeKinesis(), []
        sink = a_sink(fake, {**GIVEN, "flink.job.max.outage": "2min"}, on_failure=failed.append)
        await sink.open(SinkContext())
        fake.fail = REFUSED
        await put_numbers(sink, range(2))
        asyncio.get_running_loop().call_later(60, setattr, fake, "fail", None)
        await sink.close()
        return failed, len(fake.user_records())

    assert run_virtual(job()) == ([], 2)
