"""Jobs that read a queue of the embedded endpoint, in this process and on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.exceptions  # noqa: F401 - the transport in memory raises as the SDK does, which is translated where it is imported

import recordpublisher as rp
from recordpublisher.local import Account, Delays
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.testing.virtual_time import VirtualClock

PROPERTIES = {
    "flink.stream.recordpublisher": "QUEUE",
    "flink.queue.name": "work",
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.queue.visibility.timeout": "10",
    "aws.region": "us-east-1",
}
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


class LocalQueue:
    """Owns an account with the stream `orders`, which is on demand."""

    def __init__(self) -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(), None)

    async def open(self) -> None:
        mode = {"StreamMode": "ON_DEMAND"}
        await self.call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails=mode)
        await asyncio.sleep(60)

    def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.account.find("orders").put(payload, payload.decode(errors="replace")[:100] or "-")

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await MemoryTransport(self.account).call(api, **parameters)

    async def arn(self) -> str:
        queues = await self.call("ListQueues", StreamFilter=[{"StreamARN": ARN}])
        (found,) = queues["QueueSummaries"]
        return found["QueueARN"]

    async def receive(self, dead: str = "", wait: int = 1) -> list[dict[str, Any]]:
        """What another process would get now."""
        received = await self.call(f"Receive{dead}QueueRecords", QueueARN=await self.arn(), WaitTimeSeconds=wait)
        return received["QueueRecords"]

    @contextmanager
    def job(self, sink: rp.Sink, **properties: str) -> Iterator[rp.DataFetcher]:
        token = TRANSPORTS.set(lambda: MemoryTransport(self.account))
        own = {key if "." in key else f"flink.queue.{key}": value for key, value in properties.items()}
        try:
            yield rp.DataFetcher("orders", PROPERTIES | own, sink=sink, clock=VirtualClock())
        finally:
            TRANSPORTS.reset(token)

    async def work(self, sink: rp.Sink, **properties: str) -> dict[str, Any]:
        """Read until the queue is empty. Returns the sums of the job's metrics."""
        with self.job(sink, **properties) as fetcher:
            async with fetcher:
                await fetcher.run_bounded(stop_at_tip=True, max_time="1000s")
            return sums(fetcher)


def sums(fetcher: rp.DataFetcher) -> dict[str, Any]:
    shards = fetcher.metrics()["shards"].values()
    names = ("unacknowledged", "failedAcknowledgements", "duplicates", "retries")
    return {name: sum(shard[name] for shard in shards) for name in names}
