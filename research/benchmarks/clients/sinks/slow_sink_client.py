"""A process that reads a replayed stream into a sink that sleeps a second for each write: URL POLLING|EFO SECONDS.

Prints the share of one core that it takes once every queue is full.
"""

import asyncio
import sys
import time

import recordpublisher as rp

from benchmarks.clients.pipeline_client import properties_of

WARM_UP_SECONDS = 5


class SleepingSink(rp.Sink):
    """Waits, as for a slow database."""

    async def write(self, batch):
        await asyncio.sleep(1)


async def main(url, publisher, seconds):
    async with rp.DataFetcher(["replay"], properties_of(url, publisher, "off"), sink=SleepingSink()) as fetcher:
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(WARM_UP_SECONDS)
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(float(seconds))
        print((time.process_time() - cpu) / (time.monotonic() - wall))
        fetcher.stop()
        await running


asyncio.run(main(*sys.argv[1:]))
