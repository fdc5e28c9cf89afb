"""A process that reads a replayed stream of many shards: URL POLLING|EFO LOOKAHEAD|off RECORDS BODY.

Prints JSON: seconds of its CPU until the fetcher is open (`opened`) and until the first record is written (`started`), microseconds per
record after that (`record`), and its largest resident memory in MB (`rss`). BODY is how many records a call of GetRecords may bring.
"""

import asyncio
import json
import resource
import sys
import time

from benchmarks.pipeline_client import properties_of

import recordpublisher as rp


class FirstWrite(rp.Sink):
    """Notes what was spent until the first write."""

    spent = None
    records = 0

    async def write(self, batch):
        if self.spent is None:
            self.spent, self.records = time.process_time(), len(batch)


async def main(url, publisher, lookahead, records, body):
    properties = {**properties_of(url, publisher, lookahead), "flink.shard.getrecords.maxrecordcount": body}
    sink = FirstWrite()
    imported = time.process_time()
    async with rp.DataFetcher(["replay"], properties, sink=sink) as fetcher:
        opened = time.process_time()
        result = await fetcher.run()
        spent = time.process_time() - sink.spent
    assert result.records == int(records), result
    said = {
        "opened": opened - imported,
        "started": sink.spent - imported,
        "record": spent / (result.records - sink.records) * 1e6,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
