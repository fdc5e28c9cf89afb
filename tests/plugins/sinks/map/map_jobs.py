"""What tests of MapSink share: batches with keys, a handler that the test lets go on, and a sink that is written to."""

import asyncio
from dataclasses import replace

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.records import RecordBatch

from fakes.batches import batch


def keyed(*keys: str | None) -> RecordBatch:
    """A batch with a record for each key; the payload is its number."""
    made = batch(*(b"%d" % number for number in range(len(keys))))
    records = [
        rp.UserRecord(r.data, r.sequence_number, r.arrival, key) for r, key in zip(made.records, keys, strict=True)
    ]
    return replace(made, records=records)


class Running:
    """A handler whose calls end when the test says so."""

    def __init__(self):
        self.open: dict[bytes, asyncio.Future] = {}
        self.begun: list[bytes] = []

    async def __call__(self, record):
        self.begun.append(record.data)
        self.open[record.data] = asyncio.get_running_loop().create_future()
        await self.open[record.data]


async def settled():
    """Let every task run until it waits for a timer or for the test."""
    for _ in range(50):
        await asyncio.sleep(0)


async def written(sink, *batches, **context):
    await sink.open(SinkContext(**context))
    for each in batches:
        await sink.write(each)
    await settled()
