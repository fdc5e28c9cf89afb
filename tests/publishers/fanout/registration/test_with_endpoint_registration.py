"""Fan-out on the embedded endpoint: consumers are registered, shared and deregistered (F8)."""

import asyncio

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics

from servers.fanout_endpoint import ACCESS, Job, endpoint_with, opened
from servers.fast_time import run_fast


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


def test_f8_the_last_worker_deregisters():
    async def main():
        async with endpoint_with(2) as endpoint:
            stream, ref_counts = endpoint.stream("orders"), ConsumerRefCounts()
            first, second = Job(endpoint, ref_counts), Job(endpoint, ref_counts)
            for job in (first, second):
                await job.factory.create(job.shard(), StartingPosition.trim_horizon(), ShardMetrics())
            await first.factory.close()
            statuses = [consumer.status(endpoint.clock.now_ms()) for consumer in stream.consumers.all()]
            await second.factory.close()
            await asyncio.sleep(1)
            assert (statuses, stream.consumers.all()) == (["ACTIVE"], [])

    run_fast(main())


def test_f8_a_deleting_consumer_is_registered_again():
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
        with pytest.raises(StreamNotFoundError, match=r"'oders' does not exist in .*; existing streams: orders"):
            FanOutRecordPublisherFactory(properties, ["oders"])
