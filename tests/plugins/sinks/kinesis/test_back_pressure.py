"""Back-pressure of the Kinesis sink on virtual time: limits, waiting, warnings, cancelled writers (K1, FLINK-9374)."""

import asyncio
import logging

import pytest

from recordpublisher.fetcher.sink import SinkContext, UnfinishedShard
from recordpublisher.plugins.sinks.kinesis.outstanding_records import FifoWaiters
from recordpublisher.plugins.sinks.kinesis.sink_settings import KinesisSinkCounters
from recordpublisher.publishers.errors import ConfigurationError, SinkError, TransientError
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.batches import batch
from fakes.writable_stream import FakeKinesis, a_sink, now, put_numbers


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_k1_any_limit_drains_and_bounds_the_outstanding_records(limit):
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


def test_k1_a_waiting_put_is_woken_by_a_completion_and_checks_every_interval():
    async def job():
        fake = FakeKinesis()
        fake.latency = 1.0
        async with a_sink(fake, {"RecordMaxBufferedTime": 0}, queue_limit=1) as sink:
            await sink.put(b"1", "k")
            began = now()
            await sink.put(b"2", "k")
            return sink.metrics()["backpressureCycles"], now() - began

    cycles, seconds = run_virtual(job())
    assert 4 <= cycles <= 16
    assert 1 <= seconds < 1.5


def test_k1_a_wait_that_exceeds_a_second_is_one_warning(caplog):
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
    (warning,) = [line for line in caplog.messages if line.startswith("a write has been waiting")]
    assert "1 records" in warning


def test_k1_writes_that_wait_one_after_the_other_are_one_warning_a_minute(caplog):
    """As the requests of a server in an outage, of which each waits for two seconds."""

    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, queue_limit=1) as sink:
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            await sink.put(b"1", "k")
            while now() < 130:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(2):
                        await sink.put(b"2", "k")
            fake.fail = None

    with caplog.at_level(logging.WARNING):
        run_virtual(job())
    assert len([line for line in caplog.messages if line.startswith("a write has been waiting")]) == 3


def test_k1_writes_that_wait_together_are_one_warning(caplog):
    async def job():
        fake = FakeKinesis()
        fake.latency = 1.5
        async with a_sink(fake, queue_limit=100) as sink:
            await asyncio.gather(*(sink.put(b"1", "k") for _ in range(150)))

    with caplog.at_level(logging.WARNING):
        run_virtual(job())
    told = [record.getMessage() for record in caplog.records]
    (warning,) = [line for line in told if line.startswith("a write has been waiting")]
    assert ", and 49 more after it: " in warning


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
    async def limit(shards):
        async with a_sink(FakeKinesis(shards)) as sink:
            return sink.metrics()["queueLimitBytes"]

    assert run_virtual(limit(2)) == 20_000_000
    assert run_virtual(limit(100)) == 128 * 2**20


@pytest.mark.parametrize("limit", [0, -1, True, "10", 1.5, dict])
def test_c2_an_invalid_limit_is_a_configuration_error(limit):
    with pytest.raises(ConfigurationError, match="queue_limit"):
        a_sink(FakeKinesis(), queue_limit=limit)


@pytest.mark.parametrize("returned", [0, None, "many"])
def test_a_limit_function_that_returns_no_limit_fails_the_sink(returned):
    with pytest.raises(ConfigurationError, match="queue_limit"):
        a_sink(FakeKinesis(), queue_limit=lambda statistics: returned)


def test_k1_a_cancelled_put_did_not_accept_its_record():
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
        waiters, free, served = FifoWaiters(VirtualClock(), 3_600, KinesisSinkCounters()), [], []

        async def write(number):
            await waiters.wait_until(lambda: bool(free), str)
            free.pop()
            served.append(number)

        writes = [asyncio.create_task(write(number)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        free.extend((1, 2))
        waiters.notify_first()
        writes[0].cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert served == [2, 3]
        assert now() < 10

    run_virtual(job())


def test_writers_are_served_in_the_order_in_which_they_came():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, queue_limit=1, ordering="PER_KEY") as sink:
            await asyncio.gather(*(sink.put(str(number).encode(), "k") for number in range(30)))
        assert [int(data) for _, data in fake.user_records()] == list(range(30))

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


def test_e4_a_write_does_not_wait_for_capacity_while_the_job_may_not_write():
    async def job():
        permission, resumed = [False], []
        sink = a_sink(FakeKinesis(), queue_limit=2)
        await sink.open(SinkContext(may_write=lambda: permission[0], resume_writing=lambda: resumed.append(1)))
        assert sink.has_room()
        await sink.write(batch(*[b"x"] * 5))
        assert not sink.has_room()
        assert sink.metrics()["outstandingRecordsCount"] == 5
        permission[0] = True
        await sink.flush()
        assert sink.has_room()
        assert resumed
        await sink.close()

    run_virtual(job())


def test_it_says_what_is_not_acknowledged_of_each_shard_and_since_when():  # A1
    async def job():
        permission = [False]
        sink = a_sink(FakeKinesis())
        await sink.open(SinkContext(may_write=lambda: permission[0]))
        first, second = batch(*[b"x"] * 3), batch(b"y")
        await sink.write(first)
        await sink.write(second)
        waiting = sink.unfinished()
        permission[0] = True
        await sink.flush()
        done = sink.unfinished()
        await sink.close()
        return first, waiting, done

    first, waiting, done = run_virtual(job())

    assert waiting.shards == {first.shard.key: UnfinishedShard(4, first.arrival_millis[0])}
    assert (done.records, done.shards) == (0, {})
