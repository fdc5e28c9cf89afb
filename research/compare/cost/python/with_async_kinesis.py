"""Reads with async-kinesis, which has no fan-out: URL polling WARM SEGMENT SEGMENTS. It deserializes nothing."""

import asyncio
import os
import sys

from kinesis import Consumer
from kinesis.processors import Processor, SimpleAggregator
from meter import Meter

os.environ |= {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


class Bytes(Processor, SimpleAggregator):
    """Leaves a record as it is."""

    def deserialize(self, data):
        return data


async def main(url, _, *numbers):
    meter = Meter(*numbers)
    settings = {"use_list_shards": True, "sleep_time_no_records": 0.2, "shard_fetch_rate": 5, "idle_timeout": 30}
    async with Consumer("cost", endpoint_url=url, region_name="us-east-1", processor=Bytes(), **settings) as consumer:
        while True:
            async for record in consumer:
                meter.add([record])


asyncio.run(main(*sys.argv[1:]))
