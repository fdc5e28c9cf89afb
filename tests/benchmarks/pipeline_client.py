"""A process that reads the replayed stream through the whole pipeline: URL POLLING|EFO LOOKAHEAD|off RECORDS PART."""

import asyncio
import sys

from benchmarks.stopwatch import Stopwatch

import recordpublisher as rp

CONSUMER = "arn:aws:kinesis:us-east-1:000000000000:stream/replay/consumer/bench:1"


class NoSink(rp.Sink):
    """Counts and forgets."""

    def __init__(self, stopwatch):
        self._stopwatch = stopwatch

    async def write(self, batch):
        self._stopwatch.count(len(batch))


async def main(url, publisher, lookahead, records, part):
    properties = {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "a",
        "aws.credentials.provider.basic.secretkey": "s",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.stream.recordpublisher": publisher,
        "flink.stream.efo.registration": "NONE",
        "flink.stream.efo.consumerarn.replay": CONSUMER,
    }
    if lookahead != "off":
        properties["flink.watermark.lookahead.millis"] = lookahead
    stopwatch = Stopwatch(int(part))
    async with rp.DataFetcher(["replay"], properties, sink=NoSink(stopwatch)) as fetcher:
        result = await fetcher.run()
    assert result.records == int(records), result
    stopwatch.tell()


asyncio.run(main(*sys.argv[1:]))
