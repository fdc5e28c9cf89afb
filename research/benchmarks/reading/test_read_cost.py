"""CPU per record of the lowest layers alone: one call, one event, one publisher, next to the SDKs' own parsers (`make bench` prints it)."""

import asyncio
import time
from itertools import pairwise

import boto3
import pytest
from aiobotocore.session import AioSession

from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from benchmarks.processes import replay_server

pytestmark = pytest.mark.benchmark

RECORDS, EVENT, ROUNDS = 10_000, 2_500, 6
ROOM = 2**30
SHARD = Shard("s", "shardId-0")
START = StartingPosition.trim_horizon()
KEYS = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "s"}


@pytest.fixture(params=[200, 1024])
def endpoint(request):
    with replay_server(1, ROUNDS * RECORDS, EVENT, request.param) as url:
        yield request.param, url


class Frozen:
    """A clock on which every wait ends at once."""

    def __init__(self):
        self._seconds = 0.0

    def now_ms(self):
        return 0

    def monotonic(self):
        self._seconds += 10
        return self._seconds

    def boottime(self):
        return self.monotonic()

    def cpu_seconds(self):
        return time.process_time()


class EnoughError(Exception):
    pass


def micros(marks, count=RECORDS):
    """The lowest of the rounds: other work disturbs the others."""
    return min(after - before for before, after in pairwise(marks)) / count * 1e6


async def cost_of(read):
    marks = [time.process_time()]
    for _ in range(ROUNDS):
        assert await read() == RECORDS
        marks.append(time.process_time())
    return micros(marks)


async def ours(properties):
    async with KinesisClient(properties) as client:
        polled = await cost_of(lambda: count_of(client.get_records(SHARD, "0", RECORDS)))
        subscription = await client.subscribe_to_shard("consumer-arn", SHARD, START)
        marks = [time.process_time()]
        async for event in subscription:
            assert len(event.records) == EVENT
            marks.append(time.process_time())
    return polled, micros(marks[1:], EVENT)


async def count_of(answer):
    return len((await answer).records)


async def published(properties):
    factory = PollingRecordPublisherFactory(properties, clock=Frozen())
    publisher = await factory.create(SHARD, START, ShardMetrics())
    publisher.set_read_budget(ROOM)
    marks = []

    async def consumer(batch):
        marks.append(time.process_time())
        if len(marks) == ROUNDS:
            raise EnoughError
        return batch.read_position

    with pytest.raises(EnoughError):
        await publisher.run(consumer)
    await factory.close()
    return micros(marks)


async def sdk_asynchronous(url):
    async with AioSession().create_client("kinesis", endpoint_url=url, **KEYS) as client:

        async def read():
            return len((await client.get_records(ShardIterator="0"))["Records"])

        return await cost_of(read)


async def sdk_synchronous(url):
    client = boto3.client("kinesis", endpoint_url=url, **KEYS)

    async def read():
        return len(client.get_records(ShardIterator="0")["Records"])

    return await cost_of(read)


def test_cpu_per_record(endpoint, capsys):
    size, url = endpoint
    keys = {"aws.credentials.provider.basic.accesskeyid": "a", "aws.credentials.provider.basic.secretkey": "s"}
    properties = Properties({"aws.endpoint": url, **keys})
    polled, pushed = asyncio.run(ours(properties))
    rows = {
        "GetRecords, our decoder": polled,
        "SubscribeToShard, our decoder": pushed,
        "polling publisher": asyncio.run(published(properties)),
        "GetRecords, aiobotocore alone": asyncio.run(sdk_asynchronous(url)),
        "GetRecords, boto3 alone": asyncio.run(sdk_synchronous(url)),
    }
    with capsys.disabled():
        print(f"\n{RECORDS} records of {size} B, us of CPU a record")
        for name, cost in rows.items():
            print(f"  {name:32}{cost:7.2f}")
