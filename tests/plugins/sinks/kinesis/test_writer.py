"""The core of the Kinesis sink on virtual time: calls, flush, errors, close (K2, K3)."""

import asyncio
import logging
import re
from datetime import timedelta

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    SinkError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, now, put_numbers


def test_k3_flush_returns_when_everything_is_acknowledged():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake) as sink:
            await put_numbers(sink, range(1_200))
            assert sink.metrics()["outstandingRecordsCount"] > 0
            await sink.flush()
            assert sink.metrics()["outstandingRecordsCount"] == 0
            assert len(fake.user_records()) == 1_200
            assert sink.metrics()["numRecordsOut"] == 1_200

    run_virtual(job())


def test_the_end_of_the_loop_cancels_the_sender_and_ends_a_flush():
    """`asyncio.run` cancels all tasks at its end. The sink's own tasks end first, and no close may wait for them."""

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.__aenter__()
        await put_numbers(sink, range(3))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(SinkError, match=r"kinesis-sink-sender was cancelled.*not acknowledged: 3 records$"):
            await sink.close()
        assert fake.calls == []

    run_virtual(job())


def test_a_sink_that_was_opened_in_another_event_loop_says_what_to_do():
    fake = FakeKinesis()
    sink = a_sink(fake)
    run_virtual(sink.__aenter__())
    with pytest.raises(SinkError, match=r"end of the event loop .*\. Open and use a sink in one event loop$"):
        run_virtual(put_numbers(sink, [1]))


def test_a_record_waits_for_a_full_call_no_longer_than_the_linger():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            began = now()
            await put_numbers(sink, range(3))
            await asyncio.sleep(0.05)
            assert fake.calls == []
            await asyncio.sleep(0.08)
            assert fake.calls == [3]
            assert now() - began < 0.2

    run_virtual(job())


def test_a_full_call_is_sent_at_once():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake) as sink:
            for number in range(501):
                await sink.put(b"x", str(number))
            await asyncio.sleep(0.01)
            assert fake.calls == [500]

    run_virtual(job())


def test_k1_put_before_open_and_after_close_raises():
    async def job():
        sink = a_sink(FakeKinesis())
        with pytest.raises(SinkError, match=r"of out is not open: put inside 'async with sink:'$"):
            await sink.put(b"x", "k")
        async with sink:
            pass
        with pytest.raises(SinkError, match="closed"):
            await sink.put(b"x", "k")
        with pytest.raises(SinkError, match="closed"):
            await sink.flush()
        await sink.close()

    run_virtual(job())


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        ((7,), r"str\(7\) makes one"),
        ((b"k",), r"str\(b'k'\) makes one"),
        (("k", 7), r"str\(7\) makes one"),
        ((None,), "give each record one"),
    ],
)
def test_a_key_that_is_no_text_is_refused_in_a_sentence(keys, how):
    async def job():
        async with a_sink(FakeKinesis()) as sink:
            with pytest.raises(TypeError, match=rf"a key of a record must be str, not \w+: {how}"):
                await sink.put(b"x", *keys)

    run_virtual(job())


def test_k3_an_asynchronous_error_is_raised_by_the_next_put_or_flush_and_not_again_by_close():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        async with sink:
            await sink.put(b"x", "k")
            fake.fail = FatalKinesisError("PutRecords", "AccessDeniedException", "no")
            await asyncio.sleep(1)
            with pytest.raises(FatalKinesisError):
                await sink.put(b"y", "k")
            with pytest.raises(FatalKinesisError):
                await sink.flush()

    run_virtual(job())


def test_k3_a_flush_raises_when_a_close_of_another_task_is_cancelled():
    async def job():
        fake = FakeKinesis()
        fake.latency = 3_600
        sink = a_sink(fake)
        await sink.open(SinkContext())
        await sink.put(b"x", "k")
        flushing = asyncio.create_task(sink.flush())
        await asyncio.sleep(1)
        closing = asyncio.create_task(sink.close())
        await asyncio.sleep(1)
        closing.cancel()
        with pytest.raises(SinkError, match="is closed"):
            await flushing

    run_virtual(job())


def test_k3_an_error_that_was_not_raised_yet_is_raised_by_close():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.__aenter__()
        fake.delete()
        await sink.put(b"x", "k")
        with pytest.raises(StreamNotFoundError):
            await sink.close()
        assert fake.is_closed

    run_virtual(job())


def test_k1_an_error_ends_a_wait_for_capacity():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, queue_limit=1) as sink:
            await sink.put(b"1", "k")
            fake.delete()
            with pytest.raises(StreamNotFoundError):
                await sink.put(b"2", "k")

    run_virtual(job())


def test_a_flush_ends_while_others_go_on_putting():
    async def job():
        fake = FakeKinesis(4)
        fake.rate = 500
        async with a_sink(fake, queue_limit=1_000) as sink:

            async def put_on():
                for number in range(100_000):
                    await sink.put(b"x", str(number))

            putting = asyncio.create_task(put_on())
            await asyncio.sleep(1)
            await sink.flush()
            outstanding = sink.metrics()["outstandingRecordsCount"]
            putting.cancel()
            await asyncio.gather(putting, return_exceptions=True)
            return outstanding

    assert run_virtual(job()) > 0


def test_an_outage_is_survived():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake, queue_limit=300) as sink:
            await put_numbers(sink, range(200))
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            later = asyncio.create_task(put_numbers(sink, range(200, 1_000)))
            await asyncio.sleep(20)
            assert not later.done()
            fake.fail = None
            await later
            await sink.flush()
            assert sink.metrics()["numRecordsOutErrors"] == 0
        assert {int(data) for _, data in fake.user_records()} == set(range(1_000))

    run_virtual(job())


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 900),
        ({"properties": {"flink.job.max.outage": "30s"}}, 30),
        ({"properties": {"flink.job.max.outage": "30s"}, "max_outage": "20s"}, 20),
        ({"max_outage": timedelta(seconds=20)}, 20),
    ],
    ids=["default", "property", "argument above a property", "argument"],
)
def test_k2_a_service_that_is_away_fails_the_sink_after_the_longest_outage(given, seconds):
    async def job():
        fake = FakeKinesis()
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        async with a_sink(fake, **given) as sink:
            await sink.put(b"x", "k")
            with pytest.raises(SinkError, match="ClientConnectorError"):
                await sink.flush()
        return now()

    assert seconds <= run_virtual(job()) < seconds + 3


def test_the_error_after_the_longest_outage_of_a_job_names_the_time_the_property_and_all_records():
    async def job():
        fake = FakeKinesis(2)
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        sink = a_sink(fake, {"flink.job.max.outage": "20s"})
        await sink.open(SinkContext())
        for number in range(3):
            await sink.put(b"x", f"k{number}")
        with pytest.raises(SinkError) as told:
            await sink.flush()
        await sink.close()
        return str(told.value)

    text = run_virtual(job())
    assert re.search(
        r"which was tried \d+ times for (19|20|21|22) s \(flink\.job\.max\.outage decides\), was not put into", text
    )
    assert text.endswith(". The sink ends; accepted and not acknowledged: 3 records")


def test_a_long_partition_key_is_cut_in_an_error():
    async def job():
        async with a_sink(FakeKinesis()) as sink:
            with pytest.raises(SinkError) as told:
                await sink.put(b"x", "k" * 257)
        return str(told.value)

    assert "the partition key '" + "k" * 60 + "'... (257 characters) and 1 byte of data was not put" in run_virtual(
        job()
    )


def test_k2_a_record_arrives_after_an_outage_of_ten_minutes_and_the_log_tells_of_it(caplog):
    async def job():
        fake = FakeKinesis()
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        asyncio.get_running_loop().call_later(600, setattr, fake, "fail", None)
        async with a_sink(fake, {}) as sink:
            await sink.put(b"x", "k")
            await sink.flush()
        return len(fake.user_records())

    assert run_virtual(job()) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "recordpublisher.outages"]
    assert "PutRecords failed with ClientConnectorError: refused" in lines[0]
    assert lines[-1].startswith("calls to Kinesis succeed again, after ")
    assert 9 <= len(lines) <= 13


def test_k3_without_fail_on_error_failed_records_go_to_the_callback_and_the_others_arrive():
    failed = []

    async def job():
        fake = FakeKinesis()
        fake.refuse = lambda entry: "InternalFailure" if entry.data == b"bad" else None
        properties = {"flink.job.max.outage": "5s"}
        async with a_sink(fake, properties, fail_on_error=False, on_failure=failed.append) as sink:
            for data in (b"1", b"bad", b"2"):
                await sink.put(data, "k", "17")
            await sink.flush()
            assert sink.metrics()["numRecordsOutErrors"] == 1
            assert sink.metrics()["outstandingRecordsCount"] == 0
        assert [data for _, data in fake.user_records()] == [b"1", b"2"]

    run_virtual(job())
    (record,) = failed
    assert (record.data, record.partition_key, record.explicit_hash_key) == (b"bad", "k", "17")
    assert record.error_code == "InternalFailure"


def test_throttling_by_a_shard_that_takes_something_costs_no_retry():
    async def job():
        fake = FakeKinesis()
        fake.rate = 200
        async with a_sink(fake, {"flink.job.max.outage": "1s"}, queue_limit=400) as sink:
            await put_numbers(sink, range(2_000))
            await sink.flush()
            assert sink.metrics()["throttles"] > 900
        assert sorted(int(data) for _, data in fake.user_records()) == list(range(2_000))

    run_virtual(job())


def test_k2_after_throttling_a_shard_is_written_to_nearly_at_its_limit():
    """2,500 records at 1,000 a second, of which the first 1,000 are free: a second and a half."""

    async def job():
        fake = FakeKinesis()
        fake.rate = 1_000
        async with a_sink(fake, {"RateLimit": 1_000_000}) as sink:
            await put_numbers(sink, range(2_500))
            await sink.flush()
            return sink.metrics()["throttles"], now()

    throttles, seconds = run_virtual(job())
    assert throttles > 1_000
    assert 1.5 <= seconds < 2.5


def test_a_call_that_is_throttled_as_a_whole_is_retried():
    async def job():
        fake = FakeKinesis()
        fake.throttle_whole_calls()
        async with a_sink(fake) as sink:
            await sink.put(b"x", "k")
            await asyncio.sleep(3)
            fake.fail = None
            await sink.flush()
            assert sink.metrics()["throttles"] > 1

    run_virtual(job())


def test_concurrent_calls_are_bounded():
    async def job():
        fake = FakeKinesis(8)
        fake.latency = 1.0
        async with a_sink(fake, {"MaxConnections": 3, "RateLimit": 100_000}) as sink:
            for number in range(20_000):
                await sink.put(b"x", str(number))
        assert fake.most_concurrent == 3

    run_virtual(job())


def test_a_cancelled_close_leaves_no_task_behind():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.__aenter__()
        fake.latency = 3_600
        await sink.put(b"x", "k")
        closing = asyncio.create_task(sink.close())
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert fake.is_closed

    run_virtual(job())


def test_a_refused_call_without_a_large_record_ends_the_sink():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            fake.fail = FatalKinesisError("PutRecords", "ValidationException", "something else")
            await put_numbers(sink, range(3))
            with pytest.raises(FatalKinesisError, match="something else"):
                await sink.flush()

    run_virtual(job())


def test_a_key_with_half_a_surrogate_pair_goes_to_the_callback():
    async def job():
        fake, failed = FakeKinesis(), []
        async with a_sink(fake, fail_on_error=False, on_failure=failed.append) as sink:
            await sink.put(b"x", "a\ud800")
            await sink.put(b"y", "größe")
            await sink.flush()
        assert "half a surrogate pair" in failed[0].error_message
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"y"]


def test_an_async_callback_is_refused():
    async def later(failed):
        pass

    with pytest.raises(ConfigurationError, match="its result would not be awaited"):
        a_sink(FakeKinesis(), on_failure=later)


def test_a_close_in_an_outage_says_once_what_it_waits_for(caplog):
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {"flink.job.max.outage": "15m"})
        await sink.open(SinkContext())
        fake.fail = TransientError("PutRecords", "EndpointConnectionError", "cannot connect")
        await put_numbers(sink, range(2))
        await asyncio.sleep(30)
        failing = sink.metrics()["failingMs"]
        asyncio.get_running_loop().call_later(20, setattr, fake, "fail", None)
        await sink.close()
        return failing, sink.metrics()["failingMs"]

    with caplog.at_level(logging.WARNING):
        failing, after = run_virtual(job())
    (line,) = [text for text in caplog.messages if text.startswith("the close of the Kinesis sink")]
    assert line.startswith("the close of the Kinesis sink of out waits until 2 records are acknowledged; a kill")
    assert (
        "Calls have failed for 32 s, and the oldest records are retried for 14.5 min more (flink.job.max.outage): "
        in line
    )
    assert line.endswith("cannot connect")
    assert (29_000 <= failing <= 31_000, after) == (True, 0)


def test_a_short_close_says_nothing_and_throttles_are_no_failure(caplog):
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            fake.refuse = lambda entry: "ProvisionedThroughputExceededException" if now() < 1.2 else None
            await put_numbers(sink, range(2))
            await asyncio.sleep(1)
            return sink.metrics()["failingMs"]

    with caplog.at_level(logging.WARNING):
        assert run_virtual(job()) == 0
    assert not any(text.startswith("the close") for text in caplog.messages)
