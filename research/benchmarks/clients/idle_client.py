"""A process that reads a silent stream of the embedded endpoint: URL POLLING|EFO SECONDS.

Prints the share of one core that it takes once every shard is being read.
"""

import asyncio
import sys
import time

import recordpublisher as rp

from benchmarks.clients.pipeline_client import NoSink, access_to

WARM_UP_SECONDS = 25


async def main(url, publisher, seconds):
    properties = {**access_to(url, publisher), "flink.stream.efo.consumername": "idle"}
    async with rp.DataFetcher(["silent"], properties, sink=NoSink()) as fetcher:
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(WARM_UP_SECONDS)
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(float(seconds))
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        reads = sum(shard["reads"] for shard in fetcher.metrics()["shards"].values())
        fetcher.stop()
        await running
    print(share, reads)


asyncio.run(main(*sys.argv[1:]))
