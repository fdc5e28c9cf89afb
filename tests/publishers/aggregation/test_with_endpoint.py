"""Aggregates with sub-records of other shards, read from the embedded endpoint by every publisher."""

import asyncio
from contextlib import aclosing

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from servers.kpl_aggregates import aggregate

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
PUBLISHERS = {
    "POLLING": {"flink.shard.getrecords.intervalmillis": "200"},
    "EFO": {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "reader"},
}
QUIETLY = {"flink.stream.initpos": "TRIM_HORIZON"}


def put_aggregate(stream, numbers, hash_key):
    stream.put(aggregate(*[(f"k{number}", b"%d" % number) for number in numbers]), "outer", hash_key)


async def read_numbers(endpoint, stream, publisher, until, between=lambda: None):
    """Read until `until(numbers)` is true; `between` runs once, after the first batch."""
    properties = rp.Properties({**endpoint.properties(), **QUIETLY, **PUBLISHERS[publisher]})
    numbers, is_first = [], True
    async with asyncio.timeout(60), aclosing(rp.stream([stream], properties, publisher=publisher)) as batches:
        async for batch in batches:
            numbers += [int(value) for value in batch.values]
            if is_first:
                between()
                is_first = False
            if until(numbers):
                return sorted(numbers)
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("publisher", PUBLISHERS)
async def test_s4_a_reader_without_permission_to_describe_the_stream_reads_all(publisher):
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        put_aggregate(endpoint.stream("orders"), range(20), 0)
        endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException", 1000)
        stream = ARN if publisher == "EFO" else "orders"
        assert await read_numbers(endpoint, stream, publisher, lambda read: len(read) >= 20) == list(range(20))


@pytest.mark.parametrize("publisher", PUBLISHERS)
async def test_s4_the_distribution_is_switched_while_a_reader_runs(publisher):
    """The reader has read foreign sub-records before and dropped them."""
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        stream = endpoint.stream("orders")
        put_aggregate(stream, range(20), 0)

        def switch():
            stream.distribution = "AUTO"
            stream.mode = "ON_DEMAND"
            put_aggregate(stream, range(100, 200), None)
            put_aggregate(stream, range(200, 300), None)

        read = await read_numbers(
            endpoint, ARN, publisher, lambda numbers: len([n for n in numbers if n >= 100]) >= 200, between=switch
        )
        assert read[-200:] == list(range(100, 300))
        assert 0 < len(read) - 200 < 20
