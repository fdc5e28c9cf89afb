"""What tests of the Kinesis sink read back from the embedded endpoint."""

from collections import defaultdict

import recordpublisher as rp

UNPACED = {"RateLimit": 1_000_000}


async def read_all(endpoint, stream="out"):
    """Every user record of the stream, parents before children."""
    sink = rp.MemorySink()
    given = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    async with rp.DataFetcher([stream], given, sink=sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=60)
    return sink.records


def payloads(records):
    return [int(record.data) for record in records]


def assert_key_order(records):
    by_key = defaultdict(list)
    for record in records:
        by_key[record.partition_key].append(int(record.data))
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers), key
