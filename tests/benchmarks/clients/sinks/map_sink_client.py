"""Prints the CPU per record (us) of an async handler: awaited bare, or called by MapSink.

Arguments: when the handler returns (at_once, suspended), how it is called (bare, PER_KEY, timeout), number of records.
"""

import asyncio
import sys
import time

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext

BATCH, SIZE, KEYS = 1_000, 200, 500


async def return_at_once(record):
    pass


async def suspend_once(record):
    await asyncio.sleep(0)


def batches(count):
    for first in range(0, count, BATCH):
        records = [
            rp.UserRecord(b"x" * SIZE, str(number), 1.7e9, f"key-{number % KEYS}")
            for number in range(first, first + BATCH)
        ]
        yield rp.RecordBatch(rp.Shard("s", "shardId-0"), records, raw_count=BATCH, raw_bytes=BATCH * SIZE)


async def call_bare(handler, given):
    for batch in given:
        for record in batch:
            await handler(record)


async def call_by_sink(sink, given):
    await sink.open(SinkContext())
    for batch in given:
        await sink.write(batch)
    await sink.flush()
    await sink.close()


def main():
    kind, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    handler = {"at_once": return_at_once, "suspended": suspend_once}[kind]
    given = list(batches(count))
    if how == "bare":
        work = call_bare(handler, given)
    else:
        work = call_by_sink(rp.MapSink(handler, timeout=30.0 if how == "timeout" else None, max_bytes=2**20), given)
    began = time.process_time()
    asyncio.run(work)
    print((time.process_time() - began) / count * 1e6)


main()
