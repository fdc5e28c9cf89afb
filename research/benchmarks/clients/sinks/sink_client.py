"""A process that puts records of 200 B with KinesisSink: URL put|write|aggregated RECORDS; prints microseconds of its CPU per record.

`put` hands over record by record, `write` batches of 1,000 as a job does, `aggregated` record by record into KPL aggregates.
"""

import asyncio
import os
import sys
import time

import recordpublisher as rp
from recordpublisher.plugins.sinks.kinesis import KinesisSink

KEYS = [f"key-{number}" for number in range(997)]


async def put(sink, payloads, records):
    for number in range(records):
        await sink.put(payloads[number % 1_000], KEYS[number % 997])


async def write(sink, batches, records):
    for number in range(records // 1_000):
        await sink.write(batches[number % len(batches)])


def batches_of(payloads):
    """As a job has them when it calls the sink."""
    shard = rp.Shard("in", "shardId-000000000000")
    for start in range(0, 10_000, 1_000):
        records = [rp.UserRecord(payloads[n], str(n), 17.0, KEYS[(start + n) % 997]) for n in range(1_000)]
        yield rp.RecordBatch(shard, records)


async def main(url, how, records):
    properties = {
        "aws.region": "us-east-1",
        "aws.endpoint": url,
        "aws.credentials.provider.basic.accesskeyid": "a",
        "aws.credentials.provider.basic.secretkey": "s",
        "RateLimit": 1_000_000,
        "AggregationEnabled": how == "aggregated",
    }
    payloads = [os.urandom(200) for _ in range(1_000)]
    async with KinesisSink("out", properties) as sink:
        hand_over, what = (write, list(batches_of(payloads))) if how == "write" else (put, payloads)
        await hand_over(sink, what, 5_000)
        await sink.flush()
        before = time.process_time()
        await hand_over(sink, what, int(records))
        await sink.flush()
        print((time.process_time() - before) / int(records) * 1e6)


asyncio.run(main(*sys.argv[1:]))
