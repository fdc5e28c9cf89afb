"""The core of the Kinesis sink on virtual time: back-pressure, flush, errors, close (K1, K3)."""

import asyncio
import logging

import pytest
from fake_kinesis import THROTTLED, FakeKinesis

from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    SinkError,
    StreamNotFoundError,
    TransientError,
)

from virtual_time import VirtualClock, run_virtual


def a_sink(fake, properties=None, **arguments):
    return KinesisSink(
        "out", {"aws.region": "eu-west-1", **(properties or {})}, port=fake, clock=VirtualClock(), **arguments
    )


def now():
    return asyncio.get_running_loop().time()


async def put_numbers(sink, numbers, key="k"):
    for number in numbers:
        await sink.put(str(number).encode(), key)


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


def test_a_record_waits_for_others_no_longer_than_the_linger():
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


def test_a_full_call_goes_at_once():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake) as sink:
            for number in range(501):
                await sink.put(b"x", str(number))
            await asyncio.sleep(0.01)
            assert fake.calls == [500]

    run_virtual(job())


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_k1_any_limit_drains_and_bounds_what_is_outstanding(limit):
    async def job():
        fake = FakeKinesis()
        most = 0
        async with a_sink(fake, queue_limit=limit) as sink:
            for number in range(200):
                await sink.put(str(number).encode(), "k")
                most = max(most, sink.metrics()["outstandingRecordsCount"])
            assert sink.metrics()["backpressureCycles"] > 0
        assert most == limit
        assert len(fake.user_records()) == 200

    run_virtual(job())


def test_k1_bytes_are_bounded_too_and_a_record_above_the_limit_goes_alone():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.sink.kinesis.queue.bytes": 5_000}) as sink:
            for size in (3_000, 3_000, 20_000, 10):
                await sink.put(bytes(size), "k")
                assert sink.metrics()["outstandingRecordsCount"] == 1
        assert [len(data) for _, data in fake.user_records()] == [3_000, 3_000, 20_000, 10]

    run_virtual(job())


def test_k1_a_waiting_put_is_woken_by_a_completion_or_looks_every_interval():
    async def job(interval):
        fake = FakeKinesis()
        fake.latency = 1.0
        sink = a_sink(fake, {"flink.sink.kinesis.wait.interval": interval, "RecordMaxBufferedTime": 0}, queue_limit=1)
        async with sink:
            await sink.put(b"1", "k")
            began = now()
            await sink.put(b"2", "k")
            return sink.metrics()["backpressureCycles"], now() - began

    often, often_seconds = run_virtual(job(100))
    once, once_seconds = run_virtual(job(60_000))
    assert 4 <= often <= 16
    assert once == 1
    assert often_seconds == pytest.approx(once_seconds, abs=0.11)


def test_k1_one_warning_for_each_wait_that_exceeds_a_second(caplog):
    async def job():
        fake = FakeKinesis()
        fake.latency = 4.0
        async with a_sink(fake, queue_limit=1) as sink:
            await put_numbers(sink, range(3))
        fake.latency = 0.1
        async with a_sink(fake, queue_limit=1) as sink:
            await put_numbers(sink, range(3))

    with caplog.at_level(logging.WARNING):
        run_virtual(job())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "1 records" in told[0]


def test_k1_the_limit_may_be_a_function_of_what_was_measured():
    seen = []

    def limit(statistics):
        seen.append(statistics)
        return statistics.shards * 10

    async def job():
        fake = FakeKinesis(3)
        async with a_sink(fake, queue_limit=limit) as sink:
            for _number in range(100):
                await sink.put(bytes(99), "k")
                assert sink.metrics()["outstandingRecordsCount"] <= 30
            assert sink.metrics()["queueLimit"] == 30
        assert seen[-1].mean_record_bytes == 100
        assert seen[-1].shards == 3

    run_virtual(job())


def test_the_default_is_ten_megabytes_a_shard_up_to_a_bound():
    async def room(shards):
        async with a_sink(FakeKinesis(shards)) as sink:
            return sink.metrics()["queueLimitBytes"]

    assert run_virtual(room(2)) == 20_000_000
    assert run_virtual(room(100)) == 128 * 2**20


@pytest.mark.parametrize("limit", [0, -1, True, "10", 1.5])
def test_c2_a_limit_that_is_none_is_a_configuration_error(limit):
    with pytest.raises(ConfigurationError, match="queue_limit"):
        a_sink(FakeKinesis(), queue_limit=limit)


@pytest.mark.parametrize("answer", [0, None, "many"])
def test_a_limit_function_that_answers_none_fails_the_sink(answer):
    with pytest.raises(ConfigurationError, match="queue_limit"):
        a_sink(FakeKinesis(), queue_limit=lambda statistics: answer)


def test_k1_a_cancelled_put_was_not_taken():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, queue_limit=1) as sink:
            await sink.put(b"taken", "k")
            waiting = asyncio.create_task(sink.put(b"cancelled", "k"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await sink.put(b"later", "k")
        assert [data for _, data in fake.user_records()] == [b"taken", b"later"]

    run_virtual(job())


def test_r3_cancelling_the_first_in_line_wakes_the_next():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.sink.kinesis.wait.interval": 3_600_000}, queue_limit=1) as sink:
            await sink.put(b"0", "k")
            puts = [asyncio.create_task(sink.put(str(number).encode(), "k")) for number in (1, 2, 3)]
            await asyncio.sleep(0)
            puts[0].cancel()
            await asyncio.gather(*puts, return_exceptions=True)
        assert [data for _, data in fake.user_records()] == [b"0", b"2", b"3"]
        assert now() < 10

    run_virtual(job())


def test_writers_are_served_in_the_order_in_which_they_came():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, queue_limit=1, ordering="PER_KEY") as sink:
            await asyncio.gather(*(sink.put(str(number).encode(), "k") for number in range(30)))
        assert [int(data) for _, data in fake.user_records()] == list(range(30))

    run_virtual(job())


def test_k1_put_before_open_and_after_close_raises():
    async def job():
        sink = a_sink(FakeKinesis())
        with pytest.raises(SinkError, match="not open"):
            await sink.put(b"x", "k")
        async with sink:
            pass
        with pytest.raises(SinkError, match="closed"):
            await sink.put(b"x", "k")
        with pytest.raises(SinkError, match="closed"):
            await sink.flush()
        await sink.close()

    run_virtual(job())


def test_a_put_that_waits_while_the_sink_closes_raises():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, queue_limit=1)
        async with sink:
            await sink.put(b"1", "k")
            waiting = asyncio.create_task(sink.put(b"2", "k"))
            await asyncio.sleep(0)
        with pytest.raises(SinkError, match="closed"):
            await waiting
        assert [data for _, data in fake.user_records()] == [b"1"]
        assert fake.is_closed

    run_virtual(job())


def test_k3_an_asynchronous_error_surfaces_at_the_next_put_at_flush_and_not_again_at_close():
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


def test_k3_an_error_that_nobody_was_told_surfaces_at_close():
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


def test_k1_an_error_ends_a_wait_for_room():
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


def test_an_outage_is_sat_out():
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


def test_k2_retries_are_bounded():
    async def job():
        fake = FakeKinesis()
        fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        properties = {"flink.sink.kinesis.putrecords.maxretries": 3}
        async with a_sink(fake, properties) as sink:
            await sink.put(b"x", "k")
            with pytest.raises(SinkError, match="ClientConnectorError"):
                await sink.flush()
        return len(fake.calls)

    assert run_virtual(job()) == 4


def test_k3_without_fail_on_error_failed_records_go_to_the_callback_and_the_others_arrive():
    failed = []

    async def job():
        fake = FakeKinesis()
        fake.refuse = lambda entry: "InternalFailure" if entry.data == b"bad" else None
        properties = {"flink.sink.kinesis.putrecords.maxretries": 5}
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


def test_a_callback_that_raises_fails_the_sink():
    def callback(record):
        raise ValueError("no room for dead letters")

    async def job():
        fake = FakeKinesis()
        fake.refuse = lambda entry: "InternalFailure"
        properties = {"flink.sink.kinesis.putrecords.maxretries": 0}
        async with a_sink(fake, properties, fail_on_error=False, on_failure=callback) as sink:
            await sink.put(b"x", "k")
            with pytest.raises(ValueError, match="dead letters"):
                await sink.flush()

    run_virtual(job())


def test_throttles_of_a_shard_that_takes_something_cost_no_retry():
    async def job():
        fake = FakeKinesis()
        fake.rate = 20
        async with a_sink(fake, {"flink.sink.kinesis.putrecords.maxretries": 3}, queue_limit=400) as sink:
            await put_numbers(sink, range(2_000))
            await sink.flush()
            assert sink.metrics()["throttles"] > 20
        assert sorted(int(data) for _, data in fake.user_records()) == list(range(2_000))

    run_virtual(job())


def test_a_call_that_is_throttled_as_a_whole_is_tried_again():
    async def job():
        fake = FakeKinesis()
        fake.throttle_whole_calls()
        async with a_sink(fake) as sink:
            await sink.put(b"x", "k")
            await asyncio.sleep(3)
            fake.fail = None
            await sink.flush()
            assert sink.metrics()["throttles"] > 1
            assert THROTTLED

    run_virtual(job())


def test_calls_at_a_time_are_bounded():
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
