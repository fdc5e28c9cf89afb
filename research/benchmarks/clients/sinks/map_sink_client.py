"""Prints the CPU per record (us) of an async handler: awaited bare, or called by MapSink.

Arguments: when the handler returns (at_once, suspended), how it is called (bare, PER_KEY, timeout; group, group-timeout: as a worker
of a group, whose permission to write is asked for), number of records.
"""

import asyncio
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import recordpublisher as rp
from recordpublisher.fetcher.leases.heartbeat import WritePermission
from recordpublisher.fetcher.pipeline.current_worker import CurrentWorker, LeaseGate
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.clock import SystemClock

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


async def call_in_a_group(sink, given):
    """With what the job of a group asks before each write: was the process suspended, is the last heartbeat young enough (E4)?"""
    clock = SystemClock()
    suspension = SuspensionDetector(clock, lambda seconds: None)
    ticking = asyncio.create_task(suspension.run())
    current, permission = CurrentWorker(), WritePermission(clock, 1e9)
    permission.confirm(permission.send_time())
    current.become(cast(Any, SimpleNamespace(permission=permission)))
    gate = LeaseGate(current, suspension, clock)
    await sink.open(SinkContext(may_write=gate.may_write_now))
    for batch in given:
        await sink.write(batch)
    await sink.flush()
    await sink.close()
    ticking.cancel()


def main():
    kind, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    handler = {"at_once": return_at_once, "suspended": suspend_once}[kind]
    given = list(batches(count))
    if how == "bare":
        work = call_bare(handler, given)
    else:
        sink = rp.MapSink(handler, timeout=30.0 if "timeout" in how else None, max_bytes=2**20)
        work = call_in_a_group(sink, given) if "group" in how else call_by_sink(sink, given)
    began = time.process_time()
    asyncio.run(work)
    print((time.process_time() - began) / count * 1e6)


main()
