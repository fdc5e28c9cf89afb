"""A process that reads its share of many replayed shards: URL POLLING|EFO LOOKAHEAD|off RECORDS BODY [WORKER PARALLELISM TRACKER].

RECORDS are those of a shard, BODY how many of them a call of GetRecords may bring, TRACKER is host:port. The sink makes the first write
wait until every shard has been read once: connecting is no part of what a record costs. Prints JSON: seconds of CPU until the fetcher is
open (`opened`) and until the first write (`started`), microseconds per record from when every shard was read (`record`, over `counted`
records), the number of `shards`, and the largest resident memory in MB (`rss`).
"""

import asyncio
import json
import re
import sys
import time
from pathlib import Path

import recordpublisher as rp

from benchmarks.clients.pipeline_client import properties_of


class StartMeasuringSink(rp.Sink):
    """Measures the CPU time at the first write, and when every shard has been read once."""

    fetcher: rp.DataFetcher
    started = None

    async def write(self, batch):
        if self.started is None:
            self.started = time.process_time()
            await self.all_are_read()
            self.read_before = sum(shard["numberOfDeaggregatedRecords"] for shard in self.shards())
            self.spent_before = time.process_time()

    async def all_are_read(self):
        while True:
            if all(shard["reads"] for shard in self.shards()):
                return
            await asyncio.sleep(0.05)

    def shards(self):
        return self.fetcher.metrics()["shards"].values()


def largest_memory_mb():
    """Of this process alone: `getrusage` would include the process that started it."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


async def main(url, publisher, lookahead, records, body):
    properties = {**properties_of(url, publisher, lookahead), "flink.shard.getrecords.maxrecordcount": body}
    sink = StartMeasuringSink()
    imported = time.process_time()
    async with rp.DataFetcher(["replay"], properties, sink=sink) as sink.fetcher:
        opened = time.process_time()
        shards = len(sink.shards())
        result = await sink.fetcher.run_bounded(stop_at_tip=True)
        counted = result.records - sink.read_before
        said = {
            "opened": opened - imported,
            "started": sink.started - imported,
            "record": (time.process_time() - sink.spent_before) / counted * 1e6,
            "counted": counted,
            "shards": shards,
            "rss": largest_memory_mb(),
        }
    assert shards
    assert result.records == int(records) * shards, (shards, result)
    print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
