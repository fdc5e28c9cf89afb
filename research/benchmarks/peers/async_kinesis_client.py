"""A process of the peers' environment that reads a replayed stream with async-kinesis: URL get_records RECORDS.

Prints microseconds of its CPU per record, from the first call to the last record. It prefetches as it likes and deserializes nothing.
"""

import asyncio
import os
import sys
import time

from kinesis import Consumer
from kinesis.processors import Processor, SimpleAggregator

os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}


class Bytes(Processor, SimpleAggregator):
    """Leaves a record as it is."""

    def deserialize(self, data):
        return data


async def main(url, _, records):
    left = int(records)
    settings = {"use_list_shards": True, "sleep_time_no_records": 0.05, "shard_fetch_rate": 5, "idle_timeout": 30}
    async with Consumer("replay", endpoint_url=url, region_name="us-east-1", processor=Bytes(), **settings) as consumer:
        before = time.process_time()
        async for _record in consumer:
            left -= 1
            if not left:
                break
        spent = time.process_time() - before
    assert not left, f"{left} records never came"
    print(spent / int(records) * 1e6, flush=True)
    os._exit(0)  # its tasks do not end by themselves


asyncio.run(main(*sys.argv[1:]))
