"""A process that reads its share of many replayed shards: URL POLLING|EFO LOOKAHEAD|off RECORDS BODY [SUBTASK PARALLELISM TRACKER].

RECORDS are those of a shard, BODY how many of them a call of GetRecords may bring, TRACKER is host:port. Prints JSON: seconds of its CPU
until the fetcher is open (`opened`) and until the first record is written (`started`), microseconds per record after that (`record`) and
from when every shard had a record written (`steady`, over `counted` records; None when that was near the end), its `shards`, and its
largest resident memory in MB (`rss`).
"""

import asyncio
import json
import resource
import sys
import time

from benchmarks.pipeline_client import properties_of

import recordpublisher as rp


class Marks(rp.Sink):
    """Notes what was spent, and how much was written, when the first shard had written and when the last one had."""

    def __init__(self):
        self.silent = None
        self.records = 0
        self.first = self.all = None

    def expect(self, shard_ids):
        self.silent = set(shard_ids)

    async def write(self, batch):
        self.records += len(batch)
        if self.first is None:
            self.first = time.process_time(), self.records
        if self.silent:
            self.silent.discard(batch.shard.key)
            if not self.silent:
                self.all = time.process_time(), self.records


def micros_since(mark, records):
    """Microseconds a record from a mark until now; None when less than a third was left."""
    if mark is None or records - mark[1] < records / 3:
        return None
    return (time.process_time() - mark[0]) / (records - mark[1]) * 1e6


async def main(url, publisher, lookahead, records, body, subtask=0, parallelism=1, tracker=None):
    properties = {**properties_of(url, publisher, lookahead), "flink.shard.getrecords.maxrecordcount": body}
    if tracker:
        properties |= {
            "flink.watermark.tracker": "TCP",
            "flink.watermark.tracker.address": tracker,
            "flink.watermark.tracker.token": "secret",
        }
    sink = Marks()
    imported = time.process_time()
    share = {"subtask": int(subtask), "parallelism": int(parallelism)}
    async with rp.DataFetcher(["replay"], properties, sink=sink, **share) as fetcher:
        opened = time.process_time()
        sink.expect(fetcher.metrics()["shards"])
        shards = len(sink.silent)
        result = await fetcher.run()
        said = {
            "opened": opened - imported,
            "started": sink.first[0] - imported,
            "record": micros_since((sink.first[0], 0), result.records),
            "steady": micros_since(sink.all, result.records),
            "counted": result.records - (sink.all or sink.first)[1],
            "shards": shards,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    assert shards
    assert result.records == int(records) * shards, (shards, result)
    print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
