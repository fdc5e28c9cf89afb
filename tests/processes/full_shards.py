"""How much memory a thousand full shards take with a sink whose write never returns.

Run as a process of its own: `processes/full_shards.py POLLING|EFO SHARDS BUDGET_BYTES RECORD_BYTES`; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
from botocore import xform_name

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.kinesis.codec import RAW_EVENTS, READ, decode_read
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import STREAM, fetcher_over
from servers.event_frames import frame

ARN = f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}"
EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
MOST_PER_READ = 2_000


class EndlessTransport:
    """Returns the requested number of records for every read at once."""

    def __init__(self, shards: int, record_bytes: int) -> None:
        self._shards = shards
        self._data = bytes(record_bytes)
        self.responses = 0

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return getattr(self, xform_name(api))(**parameters)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        events = itertools.count()

        async def readany() -> bytes:
            await asyncio.sleep(0.01)
            return frame(EVENT, self._body("ContinuationSequenceNumber", 500 * next(events), 500))

        return {
            RAW_EVENTS: SimpleNamespace(content=SimpleNamespace(readany=readany), connection=None, close=lambda: None)
        }

    async def close(self) -> None:
        pass

    def list_shards(self, **_: Any) -> dict[str, Any]:
        step = 2**128 // self._shards
        shards = [
            {
                "ShardId": f"shardId-{index:012d}",
                "HashKeyRange": {"StartingHashKey": str(index * step), "EndingHashKey": str((index + 1) * step - 1)},
                "SequenceNumberRange": {"StartingSequenceNumber": "1"},
            }
            for index in range(self._shards)
        ]
        return {"Shards": shards, "ResponseMetadata": {"HTTPHeaders": {}}}

    def describe_stream_summary(self, **_: Any) -> dict[str, Any]:
        return {"StreamDescriptionSummary": {"StreamARN": ARN, "RetentionPeriodHours": 24}}

    def describe_stream_consumer(self, **_: Any) -> dict[str, Any]:
        described = {"ConsumerName": "app", "ConsumerARN": f"{ARN}/consumer/app:1", "ConsumerStatus": "ACTIVE"}
        return {"ConsumerDescription": described}

    def get_shard_iterator(self, **_: Any) -> dict[str, Any]:
        return {"ShardIterator": "0"}

    def get_records(self, **parameters: Any) -> dict[str, Any]:
        count = min(parameters["Limit"], MOST_PER_READ)
        return {READ: decode_read(self._body("NextShardIterator", int(parameters["ShardIterator"]), count))}

    def _body(self, following: str, first: int, count: int) -> bytes:
        self.responses += 1
        records = [
            {
                "SequenceNumber": str(number),
                "ApproximateArrivalTimestamp": 1.5,
                "Data": self._data,
                "PartitionKey": f"k{number}",
            }
            for number in range(first, first + count)
        ]
        return msgspec.json.encode({"Records": records, "MillisBehindLatest": 9, following: str(first + count)})


class StuckSink(Sink):
    async def write(self, batch: Any) -> None:
        await asyncio.sleep(1e6)


def rss() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


async def measure(publisher: str, shards: int, budget: int, record_bytes: int) -> dict[str, int]:
    transport = EndlessTransport(shards, record_bytes)
    given = Properties(
        {
            "flink.stream.recordpublisher": publisher,
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "app",
            "flink.worker.queue.bytes": budget,
        }
    )
    fetcher = fetcher_over(transport, given, StuckSink(), VirtualClock())
    await fetcher.open()
    gc.collect()
    before = rss()
    running = asyncio.create_task(fetcher.run_bounded(Bounds()))
    await asyncio.sleep(30)
    gc.collect()
    queued = [entry.reading.queue.bytes for entry in fetcher._table]
    held = rss() - before
    del running
    return {
        "held": held,
        "queued": sum(queued),
        "reading": sum(size > 0 for size in queued),
        "responses": transport.responses,
    }


if __name__ == "__main__":
    publisher, *numbers = sys.argv[1:]

    async def main() -> None:
        print(json.dumps(await measure(publisher, *map(int, numbers))), flush=True)
        os._exit(0)  # the stuck write would be waited for

    run_virtual(main())
