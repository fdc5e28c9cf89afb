"""The jobs whose calls are compared with the policies: started, split, checkpointed, restarted and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

import recordpublisher as rp
from recordpublisher.local import LocalKinesisThread
from recordpublisher.local import stream as resharding

from iam.simulated_aws import FRONT, RUN

BOUND = 60
AT_END = {"kinesis:DeregisterStreamConsumer"}
"""Called when a job closes."""


@dataclass(frozen=True)
class Job:
    """The features that a job uses, and their properties."""

    features: tuple[str, ...]
    properties: dict[str, Any] = field(default_factory=dict)
    restarts: bool = False


JOBS = {
    "polling-s3": Job(("polling", "state-s3"), {"flink.state.uri": f"s3://bucket/jobs/{RUN}"}, restarts=True),
    "polling-dynamodb": Job(
        ("polling", "state-dynamodb"), {"flink.state.uri": f"dynamodb://states/{RUN}"}, restarts=True
    ),
    "fan-out": Job(("fan-out",), {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "billing"}),
    "fan-out-given": Job(
        ("fan-out-given",),
        {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.registration": "NONE"},
    ),
    "kinesis-sink": Job(("polling", "kinesis-sink"), {"flink.sink": "kinesis", "flink.sink.kinesis.stream": "copies"}),
    "files-s3": Job(
        ("polling", "files-s3"),
        {
            "flink.sink": "parquet",
            "flink.sink.parquet.path": f"s3://bucket/lake/orders/{RUN}",
            "flink.state.checkpoint.interval": 500,
        },
    ),
    "elastic-s3": Job(
        ("polling", "elastic-s3"),
        {"flink.job.workers": "GROUP", "flink.state.uri": f"s3://bucket/jobs/{RUN}"},
    ),
    "elastic-dynamodb": Job(
        ("polling", "elastic-dynamodb"),
        {"flink.job.workers": "GROUP", "flink.state.uri": f"dynamodb://states/{RUN}"},
    ),
    "role": Job(
        ("polling", "role"),
        {
            "aws.credentials.provider": "ASSUME_ROLE",
            "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/reader",
            "aws.credentials.provider.role.sessionname": "job",
            "aws.credentials.provider.role.stsendpoint": FRONT,
        },
    ),
}


class Run:
    """Runs a job until it has read all records and has called every action in `needed`; what it has called so far is in `called`.

    A shard is split meanwhile. With `restarts`, it stops and starts again.
    """

    def __init__(
        self,
        served: LocalKinesisThread,
        properties: dict[str, Any],
        called: Set[str],
        needed: Set[str],
        restarts: bool = False,
    ) -> None:
        self._served = served
        self._properties = properties
        self._called = called
        self._needed = needed
        self._restarts = restarts
        self._sent = 0
        self._sink = None if "flink.sink" in properties else rp.MemorySink()

    async def read_all(self) -> None:
        if self._restarts:
            await self._read(lambda: True)
        await self._read(lambda: self._needed - AT_END <= self._called)

    async def _read(self, has_called: Callable[[], bool]) -> None:
        """Read records of a shard and of its children, then end with a checkpoint."""
        async with rp.DataFetcher(["orders"], self._properties, sink=self._sink) as fetcher:
            running = asyncio.create_task(fetcher.run())
            self._send()
            await self._until(self._has_all, running)
            self._served.call(self._split)
            self._send()
            await self._until(lambda: self._has_all() and has_called(), running)
            fetcher.stop()
            await running

    async def _until(self, condition: Callable[[], bool], running: asyncio.Task[Any]) -> None:
        """Wait for a condition. Raises: what the job raised."""
        async with asyncio.timeout(BOUND):
            while not condition():
                if running.done():
                    await running
                await asyncio.sleep(0.01)

    def _send(self) -> None:
        self._served.stream("orders").put(*range(10))
        self._sent += 10

    def _has_all(self) -> bool:
        copies = self._served.endpoint.stream("copies").shards.values()
        arrived = sum(len(shard.log) for shard in copies) if self._sink is None else len(self._sink.records)
        return arrived >= self._sent or self._properties.get("flink.sink") == "parquet"  # files: its calls say when

    def _split(self) -> None:
        stream = self._served.endpoint.stream("orders")
        shard = stream.open_shards[0]
        resharding.split(stream, shard, (shard.hash_range.start + shard.hash_range.end) // 2)
