"""A process of the peers' environment that puts records of 200 B with async-kinesis: URL put RECORDS.

Prints microseconds of its CPU per record. Its limits by shard are lifted; nothing is serialized.
"""

import asyncio
import os
import sys
import time

from kinesis import Producer
from kinesis.processors import Processor, SimpleAggregator

os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}


class Bytes(Processor, SimpleAggregator):
    """Leaves a record as it is."""

    def serialize(self, item):
        return item


async def main(url, _, records):
    payloads = [os.urandom(200) for _ in range(1_000)]
    settings = {"put_rate_limit_per_shard": 10**7, "put_bandwidth_limit_per_shard": 10**7, "use_list_shards": True}
    async with Producer("out", endpoint_url=url, region_name="us-east-1", processor=Bytes(), **settings) as producer:
        before = time.process_time()
        for number in range(int(records)):
            await producer.put(payloads[number % 1_000], partition_key=f"key-{number % 997}")
        await producer.flush()
        print((time.process_time() - before) / int(records) * 1e6)


asyncio.run(main(*sys.argv[1:]))
