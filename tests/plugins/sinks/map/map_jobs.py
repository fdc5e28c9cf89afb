"""Helpers for the tests of `MapSink`: batches with keys, a handler that waits for the test, and a sink with records."""

import asyncio
from dataclasses import replace

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.records import RecordBatch

from fakes.batches import batch


def batch_of_keys(*keys: str | None) -> RecordBatch:
    """Return a batch with a record for each key. The payload of a record is its number."""
    made = batch(*(b"%d" % number for number in range(len(keys))))
    records = [
        rp.UserRecord(r.data, r.sequence_number, r.arrival, key) for r, key in zip(made.records, keys, strict=True)
    ]
    return replace(made, records=records)


class WaitingHandler:
    """A handler whose calls wait until the test ends them: `handler.open[payload].set_result(None)`."""

    def __init__(self):
        self.open: dict[bytes, asyncio.Future] = {}
        self.begun: list[bytes] = []

    async def __call__(self, record):
        self.begun.append(record.data)
        self.open[record.data] = asyncio.get_running_loop().create_future()
        await self.open[record.data]


async def settle():
    """Let every task run until it waits for a timer or for the test."""
    for _ in range(50):
        await asyncio.sleep(0)


async def open_and_write(sink, *batches, **context):
    """Open a sink, write batches, and let the handlers begin."""
    await sink.open(SinkContext(**context))
    for each in batches:
        await sink.write(each)
    await settle()
