"""A process of the peers' environment that reads one replayed shard with aiohttp and the fastest parsers: URL get_records RECORDS.

Prints microseconds of its CPU per record. Nothing is signed, checked, retried or kept in order: the minimum cost of a hand-written loop.
"""

import asyncio
import sys
import time

import aiohttp
import orjson
from pybase64 import b64decode


async def polled(session, url):
    iterator = "0"
    while iterator:
        asked = orjson.dumps({"ShardIterator": iterator, "Limit": 10_000})
        async with session.post(url, data=asked, headers={"X-Amz-Target": "Kinesis_20131202.GetRecords"}) as response:
            answer = orjson.loads(await response.read())
        yield [
            (
                record["SequenceNumber"],
                record["PartitionKey"],
                record["ApproximateArrivalTimestamp"],
                b64decode(record["Data"]),
            )
            for record in answer["Records"]
        ]
        iterator = answer.get("NextShardIterator")


async def main(url, _, records):
    async with aiohttp.ClientSession() as session:
        before = time.process_time()
        seen = 0
        async for batch in polled(session, url):
            seen += len(batch)
        spent = time.process_time() - before
    assert seen == int(records), seen
    print(spent / seen * 1e6)


asyncio.run(main(*sys.argv[1:]))
