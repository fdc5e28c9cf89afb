"""Prints what async-kinesis reads, with its checkpoints in DynamoDB: URL DYNAMODB_URL."""

import asyncio
import os
import sys

from kinesis import Consumer
from kinesis.dynamodb import DynamoDBCheckPointer
from kinesis.processors import Processor, SimpleAggregator

os.environ |= {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "us-east-1"}


class Bytes(Processor, SimpleAggregator):
    """Leaves a record as it is."""

    def deserialize(self, data):
        return data


async def main(url, dynamodb):
    checkpointer = DynamoDBCheckPointer("orders", endpoint_url=dynamodb, session_timeout=10, heartbeat_frequency=3)
    settings = {
        "use_list_shards": True,
        "sleep_time_no_records": 0.2,
        "shard_fetch_rate": 5,
        "checkpointer": checkpointer,
    }
    async with Consumer("orders", endpoint_url=url, region_name="us-east-1", processor=Bytes(), **settings) as consumer:
        while True:
            async for record in consumer:
                print("-", record.decode(), flush=True)


asyncio.run(main(*sys.argv[1:]))
