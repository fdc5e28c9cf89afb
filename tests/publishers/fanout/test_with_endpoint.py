"""Fan-out through the real SDK against the embedded endpoint: real sockets, real event frames, faults of every kind."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fast_time import FastClock, run_fast

from recordpublisher.plugins.local import LocalKinesis, StreamFault, serve_in_thread
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConsumerError, DataLossError, FatalKinesisError, StreamNotFoundError
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.holders import ConsumerHolders
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.metrics import ShardMetrics
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties import Properties
from recordpublisher.publishers.shards import HashRange, Shard

FIRST = "shardId-000000000000"
ACCESS = {"aws.credentials.provider.basic.accesskeyid": "x", "aws.credentials.provider.basic.secretkey": "y"}
PATIENT = {"aws.request.timeout": 3_600_000, "flink.shard.subscribetoshard.timeout": 3_600}  # time runs fast here


class Job:
    """One subtask on the endpoint: its factory, and a reader task for each shard."""

    def __init__(self, endpoint, holders=None, **properties):
        self.endpoint = endpoint
        self.properties = {
            "aws.endpoint": endpoint.url,
            "flink.stream.efo.consumername": "app",
            **ACCESS,
            **PATIENT,
            **properties,
        }
        self.factory = FanOutRecordPublisherFactory(
            self.properties, clock=FastClock(), holders=holders or ConsumerHolders()
        )
        self.metrics = {}
        self.batches = []
        self._news = asyncio.Event()

    @property
    def data(self):
        return [record.data.decode() for batch in self.batches for record in batch]

    async def take(self, batch):
        self.batches.append(batch)
        self._news.set()
        return batch.read_position

    def shard(self, shard_id=FIRST):
        listed = self.endpoint.stream("orders").shard(shard_id)
        return Shard("orders", shard_id, hash_range=HashRange(listed.hash_range.start, listed.hash_range.end))

    async def read(self, shard=None, consumer=None):
        shard = shard or self.shard()
        metrics = self.metrics[shard.shard_id] = ShardMetrics()
        publisher = await self.factory.create(shard, StartingPosition.trim_horizon(), metrics)
        result = RunResult.INCOMPLETE
        while result is RunResult.INCOMPLETE:
            result = await publisher.run(consumer or self.take)
        return result

    async def until(self, condition):
        async with asyncio.timeout(1_000):  # 20 real seconds
            while not condition():
                self._news.clear()
                if not condition():
                    await self._news.wait()

    async def until_read(self, *data):
        await self.until(lambda: self.data == list(data))


@asynccontextmanager
async def endpoint_with(shards=1):
    async with LocalKinesis(streams={"orders": shards}, clock=FastClock()) as endpoint:
        yield endpoint


@asynccontextmanager
async def reading(shards=1, **properties):
    """A job that reads the first shard while the block runs."""
    async with endpoint_with(shards) as endpoint:
        job = Job(endpoint, **properties)
        job.task = asyncio.create_task(job.read())
        job.task.add_done_callback(lambda task: job._news.set())
        try:
            yield job, endpoint.stream("orders"), endpoint.faults
        finally:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
            await job.factory.close()


def opened(endpoint):
    return len(endpoint.account.subscriptions._all)


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


def test_f2_after_five_minutes_it_reads_on_without_gap_or_duplicate():
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
def test_f3_f5_whatever_breaks_a_subscription_it_reads_on(fault, retries):
    async def main():
        async with reading() as (job, stream, faults):
            stream.put(b"before", "key")
            await job.until_read("before")
            faults.hit_subscription(fault)
            await asyncio.sleep(1)
            stream.put(b"after", "key")
            await job.until_read("before", "after")
            assert (job.metrics[FIRST].retries, job.metrics[FIRST].resubscribes) == (retries, 1)

    run_fast(main())


def test_f3_a_throttled_and_a_dropped_call_are_tried_again():
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


def test_f4_a_deleted_consumer_is_healed_while_reading():
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


def test_f4_a_shard_that_is_not_listed_is_data_loss():
    async def main():
        async with endpoint_with() as endpoint:
            job = Job(endpoint)
            with pytest.raises(DataLossError, match="shardId-000000000099 is gone"):
                await job.read(Shard("orders", "shardId-000000000099"))
            await job.factory.close()

    run_fast(main())


def test_f10_two_jobs_with_one_consumer_name_take_over_until_one_gives_up():
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


def test_f5_a_consumer_stuck_past_the_unread_time_out_gives_the_connection_back_and_goes_on():
    async def main():
        async with endpoint_with() as endpoint:
            stream = endpoint.stream("orders")
            stream.put(b"one", "key")
            job, open_subscriptions = Job(endpoint, **{"flink.shard.subscribetoshard.unread.timeout": 20_000}), []

            async def stuck_once(batch):
                if len(batch) and not job.data:
                    await asyncio.sleep(10)
                    open_subscriptions.append(opened(endpoint))
                    stream.put(b"two", "key")
                    await asyncio.sleep(20)
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


def test_forty_shards_share_one_client_without_waiting_for_each_other():
    async def main():
        async with endpoint_with(40) as endpoint:
            stream = endpoint.stream("orders")
            for shard in stream.open_shards:
                stream.put(shard.id.encode(), "key", shard.hash_range.start)
            job = Job(endpoint)
            tasks = [asyncio.create_task(job.read(job.shard(shard.id))) for shard in stream.open_shards]
            await job.until(lambda: len(job.data) == 40)
            assert opened(endpoint) == 40
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await job.factory.close()

    run_fast(main())


def test_f8_the_last_subtask_out_deregisters():
    async def main():
        async with endpoint_with(2) as endpoint:
            stream, holders = endpoint.stream("orders"), ConsumerHolders()
            first, second = Job(endpoint, holders), Job(endpoint, holders)
            for job in (first, second):
                await job.factory.create(job.shard(), StartingPosition.trim_horizon(), ShardMetrics())
            await first.factory.close()
            statuses = [consumer.status(endpoint.clock.now_ms()) for consumer in stream.consumers.all()]
            await second.factory.close()
            await asyncio.sleep(1)
            assert (statuses, stream.consumers.all()) == (["ACTIVE"], [])

    run_fast(main())


def test_f8_a_start_that_meets_a_deleting_consumer_registers_it_again():
    async def main():
        async with endpoint_with() as endpoint:
            stream = endpoint.stream("orders")
            stream.put(b"data", "key")
            for round_ in range(3):
                job = Job(endpoint)
                task = asyncio.create_task(job.read())
                await job.until_read("data")
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await job.factory.close()
                assert [consumer.status(endpoint.clock.now_ms()) for consumer in stream.consumers.all()] in (
                    ["DELETING"],
                    [],
                ), round_

    run_fast(main())


def test_f8_eager_registers_at_construction():
    with serve_in_thread(streams={"orders": 1}) as server:
        properties = {
            **ACCESS,
            "aws.endpoint": server.url,
            "flink.stream.efo.consumername": "app",
            "flink.stream.efo.registration": "EAGER",
        }

        async def inside_a_running_loop():
            return FanOutRecordPublisherFactory(properties, ["orders"])

        asyncio.run(inside_a_running_loop())
        (consumer,) = server.call(server.endpoint.stream("orders").consumers.all)
        assert consumer.name == "app"
        assert consumer.status(server.endpoint.clock.now_ms()) == "ACTIVE"


def test_f8_eager_on_an_unknown_stream_fails_at_construction():
    with serve_in_thread(streams={"orders": 1}) as server:
        properties = {
            **ACCESS,
            "aws.endpoint": server.url,
            "flink.stream.efo.consumername": "app",
            "flink.stream.efo.registration": "EAGER",
        }
        with pytest.raises(StreamNotFoundError, match="'oders' does not exist; existing streams: orders"):
            FanOutRecordPublisherFactory(properties, ["oders"])
