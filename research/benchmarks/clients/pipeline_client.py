"""A process that reads the replayed stream through the whole pipeline: URL POLLING|EFO LOOKAHEAD|off RECORDS [iterate].

Prints microseconds of its CPU per record, from the call of `run` to its return: the clients, iterators and subscriptions of all shards
are in it, imports and the first listing of shards are not. `iterate`: the sink looks at each record, as a `for` loop over `rp.consume`.
"""

import asyncio
import sys
import time

import recordpublisher as rp

CONSUMER = "arn:aws:kinesis:us-east-1:000000000000:stream/replay/consumer/bench:1"


class NoSink(rp.Sink):
    """Does nothing."""

    async def write(self, batch):
        pass


class IteratingSink(rp.Sink):
    """Looks at every record and at its payload."""

    def __init__(self):
        self.payload_bytes = 0

    async def write(self, batch):
        for record in batch:
            self.payload_bytes += len(record.data)


def access_to(url, publisher):
    """The properties that all readers share."""
    return {
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "a",
        "aws.credentials.provider.basic.secretkey": "s",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.stream.recordpublisher": publisher,
    }


def properties_of(url, publisher, lookahead):
    """The properties for reading the replayed stream."""
    properties = {
        **access_to(url, publisher),
        "flink.stream.efo.registration": "NONE",
        "flink.stream.efo.consumerarn.replay": CONSUMER,
    }
    if lookahead != "off":
        properties["flink.watermark.lookahead.millis"] = lookahead
    return properties


async def main(url, publisher, lookahead, records, how="drop"):
    properties = properties_of(url, publisher, lookahead)
    sink = IteratingSink() if how == "iterate" else NoSink()
    async with rp.DataFetcher(["replay"], properties, sink=sink) as fetcher:
        before = time.process_time()
        result = await fetcher.run_bounded(stop_at_tip=True)
        spent = time.process_time() - before
    assert result.records == int(records), result
    print(spent / result.records * 1e6)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
