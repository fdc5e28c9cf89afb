"""Reads with aiobotocore in a loop: URL polling|fan-out WARM SEGMENT SEGMENTS. At the tip it polls five times a second."""

import asyncio
import sys

from aiobotocore.session import AioSession
from meter import Meter

KEYS = {"region_name": "us-east-1", "aws_access_key_id": "local", "aws_secret_access_key": "local"}
SHARD = "shardId-000000000000"


async def polled(client):
    start = {"StreamName": "cost", "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = (await client.get_shard_iterator(**start))["ShardIterator"]
    while iterator:
        answer = await client.get_records(ShardIterator=iterator, Limit=10_000)
        yield answer["Records"]
        iterator = answer["NextShardIterator"]
        if answer["MillisBehindLatest"] == 0:
            await asyncio.sleep(0.2)


async def pushed(client):
    described = await client.describe_stream_summary(StreamName="cost")
    stream = described["StreamDescriptionSummary"]["StreamARN"]
    made = await client.register_stream_consumer(StreamARN=stream, ConsumerName="aiobotocore")
    await asyncio.sleep(1)  # it becomes active
    start = {"Type": "TRIM_HORIZON"}
    consumer = made["Consumer"]["ConsumerARN"]
    answer = await client.subscribe_to_shard(ConsumerARN=consumer, ShardId=SHARD, StartingPosition=start)
    async for event in answer["EventStream"]:
        yield event["SubscribeToShardEvent"]["Records"]


async def main(url, how, *numbers):
    meter = Meter(*numbers)
    async with AioSession().create_client("kinesis", endpoint_url=url, **KEYS) as client:
        async for records in (polled if how == "polling" else pushed)(client):
            meter.add([record["Data"] for record in records])


asyncio.run(main(*sys.argv[1:]))
