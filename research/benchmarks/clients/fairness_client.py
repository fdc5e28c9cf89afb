"""A process that reads a full shard beside small ones into a busy sink: URL POLLING|EFO LOOKAHEAD|off MICROS.

The sink takes MICROS of CPU for each record. Prints JSON: milliseconds from the start of the run until the last of the small shards had
all its records written (`small`), and the share of the full shard's records that were written by then (`ahead`).
"""

import asyncio
import json
import sys
import time

import recordpublisher as rp

from benchmarks.clients.pipeline_client import properties_of

FULL = "replay/shardId-000000000000"


class BusySink(rp.Sink):
    """Notes how much of every shard was written when the last one but the first wrote."""

    def __init__(self, micros):
        self.seconds = micros / 1e6
        self.full = self.ahead = 0
        self.last_small = None

    async def write(self, batch):
        if batch.shard.key == FULL:
            self.full += len(batch)
        else:
            self.last_small, self.ahead = time.monotonic(), self.full
        done = time.thread_time() + self.seconds * len(batch)
        while time.thread_time() < done:
            pass


async def main(url, publisher, lookahead, micros):
    sink = BusySink(float(micros))
    async with rp.DataFetcher(["replay"], properties_of(url, publisher, lookahead), sink=sink) as fetcher:
        began = time.monotonic()
        await fetcher.run_bounded(stop_at_tip=True)
    print(json.dumps({"small": (sink.last_small - began) * 1000, "ahead": sink.ahead / sink.full}))


asyncio.run(main(*sys.argv[1:]))
