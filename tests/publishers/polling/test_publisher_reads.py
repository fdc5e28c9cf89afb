"""The reads of a polling publisher: rate, iterators and cancellation (R1, R2, R3)."""

import asyncio

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ResourceNotFoundError, ThrottledError, TransientError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import run_virtual

from fakes.polling_shard import FakeShard, Reader, published, publisher_of, read

BROKEN = TransientError("GetRecords", "InternalFailure", "oh")
THROTTLED = ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")
NOT_FOUND = ResourceNotFoundError("GetRecords", "ResourceNotFoundException", "no such shard")


def test_r1_the_interval_is_measured_from_loop_to_loop():
    fake = FakeShard()
    fake.latency = 0.3
    read(fake, Reader(hold=0.4, stop_after=4), intervalmillis=1000)
    assert [round(b - a, 3) for a, b in zip(fake.read_at, fake.read_at[1:], strict=False)] == [1.0, 1.0, 1.0]


def test_at_the_tip_reads_are_further_apart_until_a_record_arrives():
    class Arrivals(Reader):
        async def __call__(self, batch):
            if len(self.batches) == 2:
                fake.add(b"1", b"2")
            return await super().__call__(batch)

    fake = FakeShard()
    fake.page = 1
    read(fake, Arrivals(stop_after=6), **{"tip.intervalmillis": 2000})
    assert [round(b - a, 3) for a, b in zip(fake.read_at, fake.read_at[1:], strict=False)] == [2.0, 2.0, 2.0, 0.2, 0.2]


def test_the_duration_of_each_successful_call_is_counted_without_its_retries_and_without_waiting_for_the_consumer():
    fake, metrics = FakeShard(b"1", b"2", closed=True), ShardMetrics()
    fake.page, fake.latency = 1, 0.3
    fake.errors["GetRecords"].append(BROKEN)
    read(fake, Reader(hold=7.0), metrics=metrics)
    found = metrics.worker_read_durations.value()
    assert {bound: count for bound, count in zip(found["bounds"], found["counts"], strict=False) if count} == {500: 2}
    assert round(found["sum"]) == 600


def test_r1_five_calls_a_second_are_never_exceeded():
    fake = FakeShard()
    _, result = read(fake, Reader(stop_after=20), intervalmillis=0)
    assert result is RunResult.CANCELLED
    assert fake.read_at[-1] == pytest.approx(19 * 0.2)


def test_r1_reads_stay_below_two_mebibytes_a_second_and_wait_five_seconds_after_10_mib():
    megabyte = b"x" * 2**20
    fake = FakeShard(*[megabyte] * 30, closed=True)
    fake.page = 10
    metrics = ShardMetrics()
    reader, result = read(fake, metrics=metrics)
    assert result is RunResult.COMPLETE
    assert len(reader.data) == 30
    assert metrics.throttles == 0
    assert reader.at == pytest.approx([0.0, 5.0, 10.0], abs=0.01)


def test_r1_adaptive_reads_size_the_limit_from_the_mean_record_size():
    fake = FakeShard(*[b"x" * (2**20 // 5 - 1)] * 20, closed=True)
    read(fake, adaptivereads="true", maxrecordcount=4)
    assert fake.limits[0] == 4
    assert set(fake.limits[1:]) <= {3, 4, 5}


def test_r2_an_iterator_older_than_four_minutes_is_replaced_before_use():
    fake = FakeShard(b"1", b"2", b"3", closed=True)
    fake.page = 1
    metrics = ShardMetrics()
    reader, result = read(fake, Reader(hold=241.0), metrics=metrics)
    assert result is RunResult.COMPLETE
    assert reader.data == [b"1", b"2", b"3"]
    assert metrics.iterator_refreshes == 2
    assert fake.positions[1:] == [StartingPosition.after(SequenceNumber(n)) for n in "12"]


def test_r2_an_iterator_of_three_minutes_is_used():
    fake = FakeShard(b"1", b"2", closed=True)
    fake.page = 1
    read(fake, Reader(hold=180.0))
    assert len(fake.positions) == 1


def test_r2_a_failed_read_keeps_its_fresh_iterator():
    fake = FakeShard(b"1", b"2", closed=True)
    fake.page = 1

    async def consumer(batch):
        await asyncio.sleep(241 if not reader.batches else 0)
        fake.errors["GetRecords"].extend([BROKEN] * 2)
        return await reader(batch)

    reader = Reader()
    run_virtual(published(fake, consumer))
    assert len(fake.positions) == 2


def test_r2_expired_iterators_are_replaced_without_gap_or_duplicate():
    fake = FakeShard(b"1", b"2", b"3", closed=True)
    fake.page = 1
    expired = [fake_expiry() for _ in range(12)]
    metrics = ShardMetrics()

    async def consumer(batch):
        fake.errors["GetRecords"].extend(expired[:6])
        del expired[:6]
        return await reader(batch)

    reader = Reader()
    assert run_virtual(published(fake, consumer, metrics=metrics)) is RunResult.COMPLETE
    assert reader.data == [b"1", b"2", b"3"]
    assert (metrics.iterator_refreshes, metrics.retries) == (12, 0)


def fake_expiry():
    from recordpublisher.publishers.errors import ExpiredIteratorError

    return ExpiredIteratorError("GetRecords", "ExpiredIteratorException", "Iterator expired.")


def test_r2_after_a_suspension_reading_continues_at_its_position():
    fake = FakeShard(b"1", b"2", closed=True)
    fake.page = 1

    async def consumer(batch):
        asyncio.get_running_loop().suspend(3600)
        return await reader(batch)

    reader = Reader()
    run_virtual(published(fake, consumer))
    assert reader.data == [b"1", b"2"]


@pytest.mark.parametrize("awaiting", ["GetShardIterator", "GetRecords", "pause", "consumer"])
def test_r3_cancelling_is_immediate_at_every_await_and_loses_nothing(awaiting):
    fake = FakeShard(b"1", b"2", closed=True)
    fake.page, fake.latency = 1, 1.0
    hold = 1.0
    moment = {"GetShardIterator": 0.5, "GetRecords": 1.5, "consumer": 2.5, "pause": 4.0}[awaiting]

    async def run():
        publisher = publisher_of(fake, intervalmillis=5000)
        first, second = Reader(hold=hold), Reader()
        task = asyncio.create_task(publisher.run(first))
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() == moment
        assert await publisher.run(second) is RunResult.COMPLETE
        done = first.data if awaiting == "pause" else []
        return done + second.data

    assert run_virtual(run()) == [b"1", b"2"]


def test_p7_each_shard_has_its_own_rate():
    held, free = FakeShard(b"1"), FakeShard(b"1")

    async def run():
        readers = [Reader(hold=[60.0]), Reader()]
        tasks = [
            asyncio.create_task(published(fake, reader)) for fake, reader in zip((held, free), readers, strict=True)
        ]
        await asyncio.sleep(30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(run())
    assert (len(held.read_at), len(free.read_at)) == (1, 150)
