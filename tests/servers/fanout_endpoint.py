"""Fan-out jobs through the real SDK on the embedded endpoint: real sockets, real event frames, fast time."""

import asyncio
from contextlib import asynccontextmanager

from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import HashRange, Shard

from servers.fast_time import FastClock

FIRST = "shardId-000000000000"
ACCESS = {"aws.credentials.provider.basic.accesskeyid": "x", "aws.credentials.provider.basic.secretkey": "y"}
LONG_TIMEOUTS = {"aws.request.timeout": 3_600_000, "flink.shard.subscribetoshard.timeout": 3_600}  # time runs fast here


class Job:
    """One worker on the endpoint: its factory, and a reader task for each shard."""

    def __init__(self, endpoint, ref_counts=None, **properties):
        self.endpoint = endpoint
        self.properties = {
            "aws.endpoint": endpoint.url,
            "flink.stream.efo.consumername": "app",
            **ACCESS,
            **LONG_TIMEOUTS,
            **properties,
        }
        self.factory = FanOutRecordPublisherFactory(
            self.properties, clock=FastClock(), ref_counts=ref_counts or ConsumerRefCounts()
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
