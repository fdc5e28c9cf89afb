"""Fan-out through the real SDK against the embedded endpoint: real sockets, real event frames, faults of every kind."""

import asyncio

import pytest

from recordpublisher.local import StreamFault
from recordpublisher.local.stream import split
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConsumerError, DataLossError, FatalKinesisError, StreamNotFoundError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.fanout_endpoint import FIRST, Job, endpoint_with, opened, reading
from servers.fast_time import run_fast


def test_a_stream_is_read_live():
    async def main():
        async with reading() as (job, stream, _):
            stream.put(b"before", "key")
            await job.until_read("before")
            stream.put(b"live", "key")
            await job.until_read("before", "live")
            assert job.metrics[FIRST].subscribed == 1
            assert job.batches[0].raw_bytes == 6

    run_fast(main())


def test_f2_reading_continues_after_five_minutes_without_gap_or_duplicate():
    async def main():
        async with reading() as (job, stream, _):
            for number in range(3):
                stream.put(b"%d" % number, "key")
                await job.until(lambda count=number + 1: len(job.data) == count)
                job.endpoint.clock.jump(301)
                job.endpoint.account.subscriptions.wake_all()
                await job.until(lambda count=number + 1: job.metrics[FIRST].resubscribes == count)
            assert job.data == ["0", "1", "2"]
            assert job.metrics[FIRST].retries == 0

    run_fast(main())


def test_a_split_while_reading_completes_the_parent_and_names_its_children():
    async def main():
        async with reading() as (job, stream, _):
            stream.put(b"parent", "key")
            await job.until_read("parent")
            async with KinesisClient(Properties(job.properties)) as client:
                await client._call(
                    "SplitShard", StreamName="orders", ShardToSplit=FIRST, NewStartingHashKey=str(2**127)
                )
            assert await job.task is RunResult.COMPLETE
            children = job.batches[-1].child_shards
            assert [child.parents for child in children] == [(FIRST,), (FIRST,)]
            stream.put(b"child", "key", 0)
            child = asyncio.create_task(job.read(children[0]))
            await job.until_read("parent", "child")
            child.cancel()
            await asyncio.gather(child, return_exceptions=True)

    run_fast(main())


@pytest.mark.parametrize(
    ("fault", "retries"),
    [
        (StreamFault.CUT, 1),
        (StreamFault.TRUNCATE, 1),
        (StreamFault.CORRUPT, 1),
        (StreamFault.ERROR, 1),
        (StreamFault.SILENT, 1),
        (StreamFault.END, 0),
    ],
)
def test_f3_f5_reading_continues_after_any_fault_of_a_subscription(fault, retries):
    async def main():
        async with reading() as (job, stream, faults):
            stream.put(b"before", "key")
            await job.until_read("before")
            faults.fail_subscription(fault)
            await asyncio.sleep(1)
            stream.put(b"after", "key")
            await job.until_read("before", "after")
            assert (job.metrics[FIRST].retries, job.metrics[FIRST].resubscribes) == (retries, 1)

    run_fast(main())


def test_f3_a_throttled_and_a_dropped_call_are_retried():
    async def main():
        async with endpoint_with() as endpoint:
            endpoint.faults.fail_next("SubscribeToShard", "LimitExceededException")
            endpoint.faults.drop_next("SubscribeToShard")
            endpoint.stream("orders").put(b"data", "key")
            job = Job(endpoint)
            task = asyncio.create_task(job.read())
            await job.until_read("data")
            assert (job.metrics[FIRST].retries, job.metrics[FIRST].throttles) == (2, 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await job.factory.close()

    run_fast(main())


def test_f3_access_denied_is_fatal():
    async def main():
        async with reading() as (job, _, faults):
            faults.fail_next("SubscribeToShard", "AccessDeniedException")
            with pytest.raises(FatalKinesisError, match="AccessDeniedException"):
                await job.task

    run_fast(main())


def test_f4_a_deleted_consumer_is_registered_again_while_reading():
    async def main():
        async with reading() as (job, stream, _):
            stream.put(b"before", "key")
            await job.until_read("before")
            (consumer,) = stream.consumers.all()
            stream.consumers.deregister(consumer)
            job.endpoint.account.subscriptions.wake_all()
            await asyncio.sleep(1)
            stream.put(b"after", "key")
            await job.until_read("before", "after")
            (again,) = stream.consumers.all()
            assert again.arn != consumer.arn

    run_fast(main())


def test_f4_a_deleted_stream_ends_the_run_with_its_name():
    async def main():
        async with reading() as (job, stream, _):
            stream.put(b"data", "key")
            await job.until_read("data")
            async with KinesisClient(Properties(job.properties)) as client:
                await client._call("DeleteStream", StreamName="orders", EnforceConsumerDeletion=True)
            with pytest.raises(StreamNotFoundError, match="orders"):
                await job.task

    run_fast(main())


def test_f4_a_shard_past_retention_is_data_loss():
    async def main():
        async with endpoint_with() as endpoint:
            job, stream = Job(endpoint), endpoint.stream("orders")
            split(stream, stream.shard("shardId-000000000000"), 2**127)
            endpoint.clock.jump(48 * 3600)
            stream.apply_retention()
            with pytest.raises(DataLossError, match="shardId-000000000000 is gone"):
                await job.read(Shard("orders", "shardId-000000000000"))
            await job.factory.close()

    run_fast(main())


def test_f10_two_jobs_with_one_consumer_name_take_over_until_one_fails():
    async def main():
        async with endpoint_with() as endpoint:
            jobs = [Job(endpoint), Job(endpoint)]
            tasks = [asyncio.create_task(job.read()) for job in jobs]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(ConsumerError, match=r"taken over 5 times in a row.*/consumer/app"):
                await done.pop()
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            for job in jobs:
                await job.factory.close()

    run_fast(main())


def test_f1_a_slow_consumer_holds_one_event_and_loses_nothing():
    async def main():
        async with endpoint_with() as endpoint:
            stream = endpoint.stream("orders")
            for number in range(100):
                stream.put(b"%d" % number + bytes(50_000), "key")
            job = Job(endpoint)

            async def slow(batch):
                await asyncio.sleep(10)
                return await job.take(batch)

            task = asyncio.create_task(job.read(consumer=slow))
            await job.until(lambda: len(job.data) == 100)
            assert [int(data.rstrip("\0")) for data in job.data] == list(range(100))
            assert max(batch.raw_bytes for batch in job.batches) < 1.1 * 2**20
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await job.factory.close()

    run_fast(main())


def test_f5_after_the_unread_time_out_the_connection_is_closed_and_reading_continues_later():
    async def main():
        async with endpoint_with() as endpoint:
            stream = endpoint.stream("orders")
            stream.put(b"one", "key")
            job, open_subscriptions = Job(endpoint), []

            async def stuck_once(batch):
                if len(batch) and not job.data:
                    await asyncio.sleep(10)
                    open_subscriptions.append(opened(endpoint))
                    stream.put(b"two", "key")
                    await asyncio.sleep(60)
                    open_subscriptions.append(opened(endpoint))
                return await job.take(batch)

            task = asyncio.create_task(job.read(consumer=stuck_once))
            await job.until_read("one", "two")
            assert open_subscriptions == [1, 0]
            assert (job.metrics[FIRST].retries, job.metrics[FIRST].resubscribes) == (0, 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await job.factory.close()

    run_fast(main())
